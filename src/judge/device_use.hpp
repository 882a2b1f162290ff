#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// Evaluates how a `verify` run used each device. Pure functions of the run's result, for its table and its
/// verdict.
namespace egt {

/// One device of the run. Each rank has exactly one device.
struct DeviceUse {
  int rank = 0;
  std::string label;  ///< "GPU 0"; with several nodes "GPU 0 on node1"
  std::string hostname;
  std::optional<double> used_bytes, total_bytes;  ///< device memory, after the memory test filled it
  std::optional<double> compute_ms;               ///< mean compute time of one forward/backward pass
  std::optional<double> computes;                 ///< compute time as a fraction of the step time, 0 to 1
  std::optional<double> peers_compute_ms;         ///< median of the peers, scaled to this rank's batch
  std::string figures;   ///< utilization, clocks and power, if the sensor reports them
  std::string why_idle;  ///< why the device counts as idle; empty: it is in use
  bool is_lost = false;  ///< its rank was lost; the verdict has a separate reason for that
};

/// One operation on one device.
struct OperationOnDevice {
  int rank = 0;
  std::uint64_t count = 0;  ///< verifications
  bool is_wrong = false;    ///< a fault in this operation was detected
  bool verified() const { return count > 0 && !is_wrong; }
};

struct VerifiedOperation {
  std::string name;
  std::string how;  ///< how it was verified, with the min count over devices; empty: not verified anywhere
  std::string failure;   ///< wrong results detected in this operation; empty: none
  std::string left_out;  ///< why this run excludes the operation; empty: included
  std::vector<OperationOnDevice> devices;
};

struct Readiness {
  std::vector<DeviceUse> devices;
  std::vector<VerifiedOperation> operations;  ///< always the same set, in table order
};

/// Evaluates the result of a `verify` run. A device is idle if one of these holds:
/// - its rank was lost, or the run allocated none of its memory, or none of its computations was correct;
/// - its passes took no time, or less than a tenth of its peers' time (at least one peer of the same name);
/// - the driver reported 0 % utilization throughout the run.
Readiness readiness_of(const Json& result);

/// Ranks with an idle device, excluding lost ranks. Empty for every command except `verify`.
std::set<int> ranks_of_idle_devices(const Json& result);

/// Ranks that a fault may belong to: its rank and its suspects. A device that computes nothing explains every
/// difference from its peers, so only the `idle` suspects are blamed if there are any.
std::set<int> accused_ranks(const Json& fault, const std::set<int>& idle);

/// Reasons why the run does not pass, one line each. `not_run`: operations not verified on a device, unless
/// the load part failed or a fault covers it. `idle`: idle devices.
struct ReadinessReasons {
  std::vector<std::string> not_run, idle;
};
ReadinessReasons reasons_of(const Readiness& readiness, const Json& result);

}  // namespace egt
