#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/json_access.hpp"
#include "egt/core/part_report.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/device/sensor.hpp"
#include "egt/ranks/control.hpp"

/// The bodies of records, so that nobody writes their keys by hand.
namespace egt {

/// Of the records; a journal of a higher one cannot be judged.
constexpr int journal_schema = 1;

/// Who a rank is and what it was asked to do: the body of its `start` record.
struct StartBody {
  RankPlace place;
  std::string slurm_node;  ///< the name that Slurm has for this rank's node; empty: not known
  DeviceInfo device;
  MemoryInfo memory;  ///< before the program took any
  SensorLimits limits;
  std::int64_t batch = 0;  ///< samples of this rank a step
  Json system;             ///< this rank's fields of the result's system_info
  std::string command;
  std::vector<std::string> arguments;
  Json options;                            ///< every option in effect, by long name
  std::vector<std::string> host_defaults;  ///< smaller defaults that the host backend put
  std::optional<double> duration_seconds;  ///< asked for
  std::optional<std::int64_t> steps;       ///< asked for
  std::vector<std::int64_t> layers;        ///< neurons, input first
  std::int64_t global_batch = 0;
  std::vector<Precision> precisions;
  std::string no_telemetry;  ///< why nothing watches the device; empty: something does
  std::string run_id;  ///< the same on all ranks and in all parts of a run; empty: of an earlier version
  int part = 0;        ///< of the run: how many came before it was resumed
  int process = 0;     ///< its number on its host
};
Json to_json(const StartBody& body);

/// Of all parts that the body of a progress or end record tells of, together.
VerifiedWork work_in(const Json& body);
/// The figures of the part of that name in such a body; null where there is none.
const Json& figures_in(const Json& body, std::string_view name);

/// The `error` of an `end` record: {"code", "what", "where"}; null for ok.
Json error_to_json(const Status& status);

}  // namespace egt
