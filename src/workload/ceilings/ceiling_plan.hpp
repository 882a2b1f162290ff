#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/types.hpp"
#include "workload/ceilings/step_products.hpp"

/// What `bench --ceilings` measures beside what, in which order: plain functions, the same on all ranks.
namespace egt {

enum class CeilingKind {
  product,          ///< one of the step's
  step,             ///< of training, on this device alone
  joint_step,       ///< of training, with sums over all ranks
  checked_product,  ///< over memory, with its digest
  fill,
  digest,
  verify,
  refill,  ///< verify and refill in one pass
  patrol,  ///< of memory, by its own pipeline
  update,  ///< of the weights
  extreme,
  host_copies,
  all_reduce,
  collective,  ///< an all-reduce of known answers, every element verified
  files,
};

enum class CeilingUnit { tflops, gb_per_s, bus_gb_per_s, giga_turns_per_second };
/// Of the figure in the result.
constexpr std::string_view to_string(CeilingUnit unit) {
  constexpr std::string_view names[] = {"tflops", "gb_per_s", "bus_gb_per_s", "giga_turns_per_second"};
  return names[static_cast<int>(unit)];
}
/// What one of it is: FLOP, bytes or turns a second.
constexpr double scale_of(CeilingUnit unit) {
  return unit == CeilingUnit::tflops ? 1e12 : 1e9;
}

/// A rate of ours, and the machine's own that it is held against: an entry of the result.
struct CeilingRow {
  std::string name;   ///< of the test
  std::string group;  ///< "products", "step", "memory", "extreme", "copies", "sums" or "files"
  CeilingUnit unit = CeilingUnit::gb_per_s;
  std::string limit;  ///< as in the figure's name: "ratio_copy_bandwidth" for "copy_bandwidth"
};

struct CeilingTrial {
  CeilingKind kind = CeilingKind::product;
  Precision precision = Precision::fp32;
  std::size_t product = 0;       ///< which of the step's
  std::uint64_t bytes = 0;       ///< that are summed
  std::vector<CeilingRow> rows;  ///< that are measured together
};

struct CeilingScope {
  int ranks = 1;
  std::vector<std::int64_t> layers;
  std::int64_t batch = 1;             ///< samples a rank
  std::vector<Precision> precisions;  ///< of training
  std::vector<Precision> products_over_memory;
  bool extreme = true;  ///< is it computed at all?
  bool files = true;
  std::vector<std::uint64_t> sums;  ///< bytes of an all-reduce, ascending
};

std::vector<CeilingTrial> plan_ceilings(const CeilingScope& scope);

/// How long a trial takes, seconds.
struct CeilingPace {
  double warm_up = 0.1;  ///< both sides in turn
  double burst = 0.05;   ///< of one side
  int rounds = 5;        ///< of a burst of each
};
/// `trial_seconds`: for all rounds. A GPU gets 3 s to come to the clocks that it sustains where the kind of
/// work is another than before (`is_new`), else half a second.
CeilingPace pace_of(double trial_seconds, bool is_gpu, bool is_new);

/// So many operations in the next burst, where `count` of them took `ms` on the slowest rank: for about
/// `burst_seconds`, and no more than 8 times as many as now.
std::int64_t next_count(std::int64_t count, double ms, double burst_seconds);

}  // namespace egt
