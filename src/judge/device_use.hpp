#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// What `verify` found of every device: a pure function of the run's result, for its table and its verdict.
namespace egt {

/// One device of the run, which is one rank's.
struct DeviceUse {
  int rank = 0;
  std::string label;  ///< "GPU 0", with several hosts "GPU 0 on node1"
  std::string hostname;
  std::optional<double> used_bytes, total_bytes;  ///< of its memory, once filled
  std::optional<double> compute_ms;               ///< that it worked in a pass of training, mean
  std::optional<double> computes;                 ///< share of a step's time that this is
  std::optional<double> peers_compute_ms;         ///< median of its peers' for as many samples
  std::string figures;                            ///< utilization, clocks, power, as far as they are told
  std::string why_idle;                           ///< empty: it is being used
  bool is_lost = false;                           ///< its rank was: the verdict tells that by itself
};

/// One operation on one device.
struct OperationOnDevice {
  int rank = 0;
  std::uint64_t count = 0;  ///< how often it was verified
  bool is_wrong = false;    ///< a fault was found in it
  bool verified() const { return count > 0 && !is_wrong; }
};

struct Operation {
  std::string name;
  std::string how;       ///< it was verified, with the least count of those devices; empty: on none
  std::string failure;   ///< the wrong results of it that were found; empty: none
  std::string left_out;  ///< why it is none of this run's; empty: it is one
  std::vector<OperationOnDevice> devices;
};

struct Readiness {
  std::vector<DeviceUse> devices;
  std::vector<Operation> operations;  ///< always the same, in the order of the table
};

/// Of the result of a run of `verify`. A device is idle where its rank was lost, where none of its memory was
/// taken, where none of its computations was right, and where its passes took it less than a tenth of the
/// time that its peers (of the same name, at least one) needed, or none at all; on a GPU also where the
/// driver never told any utilization.
Readiness readiness_of(const Json& result);

/// Ranks whose device is idle, without those that were lost. Empty for every command but `verify`.
std::set<int> ranks_of_idle_devices(const Json& result);

/// The ranks that a fault is of: its rank and its suspects. A device that computes nothing explains every
/// difference from its peers: of several suspects only the `idle` ones are accused.
std::set<int> accused_ranks(const Json& fault, const std::set<int>& idle);

/// What speaks against the run, one line each: operations that were not verified on some device (without
/// those of a part that failed, or of which a fault tells), and devices that are idle.
struct ReadinessReasons {
  std::vector<std::string> not_run, idle;
};
ReadinessReasons reasons_of(const Readiness& readiness, const Json& result);

}  // namespace egt
