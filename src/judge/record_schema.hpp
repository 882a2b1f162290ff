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

/// Builders of the record bodies, so that their keys are written in one place only.
namespace egt {

/// Version of the record format. A journal with a higher version cannot be judged.
constexpr int journal_schema = 1;

/// Identity and task of a rank: the body of its `start` record.
struct StartBody {
  RankPlace place;
  std::string slurm_node;  ///< Slurm's name of this rank's node; empty: unknown
  DeviceInfo device;
  MemoryInfo memory;  ///< before the program allocated any
  SensorLimits limits;
  std::int64_t batch = 0;  ///< samples of this rank per step
  Json system;             ///< this rank's fields of the result's system_info
  std::string command;
  std::vector<std::string> arguments;
  Json options;                            ///< every effective option, by long name
  std::vector<std::string> host_defaults;  ///< smaller defaults that the host backend applied
  std::optional<double> duration_seconds;  ///< as requested
  std::optional<std::int64_t> steps;       ///< as requested
  std::vector<std::int64_t> layers;        ///< neurons per layer, input first
  std::int64_t global_batch = 0;
  std::vector<Precision> precisions;
  std::string no_telemetry;  ///< why the device is not monitored; empty: it is monitored
  std::string run_id;   ///< the same on all ranks and in all parts of a run; empty: from an earlier version
  int part = 0;         ///< number of this part of the run: 0, plus 1 per resume
  int process = 0;      ///< process id on its node
  Json inventory = {};  ///< of its node before the run, on local rank 0; null: not read
};
Json to_json(const StartBody& body);

/// Verified work in the body of a progress or end record, summed over the parts of the load.
VerifiedWork work_in(const Json& body);
/// Metrics of the load part `name` in the body of a progress or end record; null if there is none.
const Json& figures_in(const Json& body, std::string_view name);

/// The `error` of an `end` record: {"code", "what", "where"}; null for ok.
Json error_to_json(const Status& status);

}  // namespace egt
