#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/compare/comparison.hpp"

/// The results of many nodes, one row per node. Pure: results in, texts and Json out.
namespace egt {

/// A metric of `compare` on one node.
struct FleetRate {
  std::string name, unit;
  double value = 0;
  std::optional<double> ratio;  ///< 1: the median of comparable nodes; below: worse. Empty: too few of them
};

struct FleetNode {
  std::string name = {};     ///< of Slurm, else the hostname; the path of a result that cannot be read
  std::string path = {};     ///< of the newest result
  std::string verdict = {};  ///< a name of the table in fleet.cpp: "pass", "fault", "unreadable", ..
  std::string reason = {};   ///< the first one; empty for a pass
  Json action = {};          ///< as in nodes[] of the result; null: none
  std::string command = {}, devices = {};  ///< "burn", "8x NVIDIA H200"
  std::optional<double> seconds = {};
  std::string ended_at = {};  ///< UTC; empty: unknown
  std::uint64_t errors = 0;
  std::optional<double> power_ratio = {};        ///< mean power over the limit, of the GPU with the lowest
  std::optional<double> max_temperature_c = {};  ///< of the hottest GPU
  std::size_t runs = 1;                          ///< with the older ones, which this one replaces
  std::string earlier_verdict = {};              ///< the most severe of the older runs; empty: none
  std::vector<FleetRate> rates = {};
};

struct Fleet {
  double tolerance = 0;          ///< 0 to 1
  std::vector<FleetNode> nodes;  ///< the most severe verdict first, then the lowest rate
  std::string verdict;           ///< the most severe one, as in a result
  int exit_code = 0;             ///< of that verdict
  std::vector<std::string> reasons;
};

/// `files` with a problem are nodes that cannot be read. A newer run of a node replaces an older one if it
/// tested all its GPUs. So a GPU that is no longer tested keeps its row.
Fleet fleet_of(const std::vector<ComparedFile>& files, double tolerance);

/// Counts, a table and what to do. On a terminal of `columns` (0: no limit) the last columns are left out.
std::string fleet_text(const Fleet& fleet, std::size_t columns);
Json fleet_json(const Fleet& fleet);
/// One self-contained HTML file; without scripts it shows the text.
std::string fleet_page(const Fleet& fleet);

}  // namespace egt
