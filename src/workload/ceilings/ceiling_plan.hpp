#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/types.hpp"
#include "workload/ceilings/step_products.hpp"

/// Plans the measurements of `bench --ceilings` and their limits. Pure functions, the same on all ranks.
namespace egt {

enum class CeilingKind {
  product,          ///< one GEMM of the training step
  step,             ///< training step on this device alone
  joint_step,       ///< training step with all-reduces over all ranks
  checked_product,  ///< memory-resident GEMM with its digest
  fill,
  digest,
  verify,
  refill,  ///< verify and refill in one pass
  patrol,  ///< memory test with its own pipeline
  update,  ///< weight update
  extreme,
  host_copies,
  all_reduce,
  collective,  ///< known-answer all-reduce, every element verified
  files,
};

enum class CeilingUnit { tflops, gb_per_s, bus_gb_per_s, giga_turns_per_second };
/// Name of the value in the result.
constexpr std::string_view to_string(CeilingUnit unit) {
  constexpr std::string_view names[] = {"tflops", "gb_per_s", "bus_gb_per_s", "giga_turns_per_second"};
  return names[static_cast<int>(unit)];
}
/// One unit in FLOP, bytes or chain iterations per second.
constexpr double scale_of(CeilingUnit unit) {
  return unit == CeilingUnit::tflops ? 1e12 : 1e9;
}

/// One of our rates and the hardware limit to compare it with; an entry of the result.
struct CeilingRow {
  std::string name;   ///< of the test
  std::string group;  ///< "products", "step", "memory", "extreme", "copies", "sums" or "files"
  CeilingUnit unit = CeilingUnit::gb_per_s;
  std::string limit;  ///< as in the value's name: "ratio_copy_bandwidth" for "copy_bandwidth"
};

struct CeilingTrial {
  CeilingKind kind = CeilingKind::product;
  Precision precision = Precision::fp32;
  std::size_t product = 0;       ///< index of the step's GEMM
  std::uint64_t bytes = 0;       ///< size of the all-reduce
  std::vector<CeilingRow> rows;  ///< rows measured together
};

struct CeilingScope {
  int ranks = 1;
  std::vector<std::int64_t> layers;
  std::int64_t batch = 1;             ///< samples per rank
  std::vector<Precision> precisions;  ///< of training
  std::vector<Precision> products_over_memory;
  bool extreme = true;  ///< whether extreme compute is enabled
  bool files = true;
  std::vector<std::uint64_t> sums;  ///< bytes per all-reduce, ascending
};

std::vector<CeilingTrial> plan_ceilings(const CeilingScope& scope);

/// Durations of a trial in seconds.
struct CeilingPace {
  double warm_up = 0.1;  ///< both sides in turn
  double burst = 0.05;   ///< of one side
  int rounds = 5;        ///< each with one burst per side
};
/// `trial_seconds`: for all rounds. If the kind of work changes (`is_new`), a GPU warms up for 3 s to reach
/// its sustained clocks, else for 0.5 s.
CeilingPace pace_of(double trial_seconds, bool is_gpu, bool is_new);

}  // namespace egt
