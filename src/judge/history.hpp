#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

/// Compares each GPU with its own past runs. A line is one GPU in one run, as `--history DIR` keeps it. Pure.
namespace egt {

constexpr int history_schema = 1;  ///< version of a line's format

/// A rate of a GPU that is compared with its past, by its name in a line's `values`.
struct HistoryRate {
  const char* name;
  const char* text;
  const char* unit;
  double least;  ///< fraction; a smaller decline is never a finding
};

/// The memory test runs concurrently with all other work, so its bandwidth depends more on the mix.
inline constexpr HistoryRate history_rates[] = {{"compute_tflops", "compute rate", "TFLOP/s", 0.01},
                                                {"memory_gb_per_s", "memory bandwidth", "GB/s", 0.1}};

/// The name of a GPU in its history: its serial number, else its UUID, else its node and index. GPU instances
/// (MIG) share the GPU's serial number, so their UUID is used. `identity`: as in result.json's `ranks[]`.
std::string history_id(const Json& identity);

/// The options of a result that affect its rates.
Json options_with_effect(const Json& options);

/// One line per rank of a run. `result`: the content of its result.json.
std::vector<Json> history_lines(const Json& result);

/// A rate of one GPU in its comparable runs: those of the same configuration as its last run, complete,
/// without faults and without injected faults.
struct RateHistory {
  const HistoryRate* rate = nullptr;
  std::size_t runs = 0;  ///< comparable ones, with the last run
  double first = 0, median = 0, last = 0;
  double trend_percent = 0;  ///< per run (Theil-Sen)
  /// ln(past / now), without what the other GPUs of the same runs changed; at the scale at which it is most
  /// significant. Empty: too few runs, or the last run is not comparable.
  std::optional<double> decline;
  double threshold = 0;  ///< of `decline`
  std::size_t now = 0;   ///< number of last runs that `decline` is about

  bool is_slower() const { return decline && *decline > threshold; }
};

/// The past of one GPU.
struct GpuHistory {
  std::string id;
  Json last;             ///< line of its last run
  std::size_t runs = 0;  ///< of any configuration
  std::vector<RateHistory> rates;
  std::vector<Finding> findings;
};

/// Min number of earlier comparable runs. With fewer, a GPU is not judged.
constexpr std::size_t min_past_runs = 5;

/// Judges each GPU's last line against its earlier ones. `lines`: of any number of GPUs; each GPU's in the
/// order of its runs. The last line of a run counts, since a resumed run has one per part. Sorted by id.
///
/// A GPU is slower than its past if the Hodges-Lehmann difference between its first runs (5 to 20) and its
/// last 1, 2, 4 or 8 runs exceeds four standard errors and the rate's `least` (twice that for 2 runs, four
/// times for one). The standard error follows from the differences between successive runs, of this GPU and
/// of the others with its configuration. A change that others share in a run is subtracted, so a warmer room
/// or another driver is no finding: the median change of three or more GPUs. Of two GPUs, one must be slower
/// than before and than the other.
///
/// Corrected memory errors (ECC) of a GPU grow if its last run has at least 20, and five times its median per
/// hour. This includes runs of other configurations and with faults.
std::vector<GpuHistory> review_history(const std::vector<Json>& lines);

/// The findings on the GPUs of this run. `past`: the lines of earlier runs. `result`: the result of this run.
std::vector<Finding> compare_with_past(std::vector<Json> past, const Json& result);

}  // namespace egt
