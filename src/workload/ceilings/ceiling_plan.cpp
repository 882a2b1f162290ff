#include "workload/ceilings/ceiling_plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

class Plan {
 public:
  explicit Plan(const CeilingScope& scope) : scope_(scope) {}

  std::vector<CeilingTrial> make() {
    for (const Precision precision : scope_.precisions) add_training(precision);
    for (const Precision precision : scope_.products_over_memory)
      add({.kind = CeilingKind::checked_product,
           .precision = precision,
           .rows = {{fmt::format("{} product over memory, digested", to_string(precision)), "products",
                     CeilingUnit::tflops, "bare_product"}}});
    add_memory();
    if (scope_.extreme)
      add({.kind = CeilingKind::extreme,
           .rows = {{"extreme term", "extreme", CeilingUnit::giga_turns_per_second, "long_chains"}}});
    add({.kind = CeilingKind::host_copies,
         .rows = {{"host copies, verified", "copies", CeilingUnit::gb_per_s, "bare_copies"}}});
    if (scope_.ranks > 1) add_sums();
    if (scope_.files)
      add({.kind = CeilingKind::files,
           .rows = {{"file write", "files", CeilingUnit::gb_per_s, "raw_write"},
                    {"file read, verified", "files", CeilingUnit::gb_per_s, "raw_read"}}});
    return std::move(trials_);
  }

 private:
  void add(CeilingTrial trial) { trials_.push_back(std::move(trial)); }

  void add_training(Precision precision) {
    const auto products = products_of_step(scope_.layers, scope_.batch);
    for (std::size_t i = 0; i < products.size(); ++i)
      add({.kind = CeilingKind::product,
           .precision = precision,
           .product = i,
           .rows = {{fmt::format("{} {}", to_string(precision), describe(products[i])), "products",
                     CeilingUnit::tflops, "large_product"}}});
    add({.kind = CeilingKind::step,
         .precision = precision,
         .rows = {{fmt::format("{} step, batch {}", to_string(precision), scope_.batch), "step",
                   CeilingUnit::tflops, "bare_products"}}});
    if (scope_.ranks == 1) return;
    add({.kind = CeilingKind::joint_step,
         .precision = precision,
         .rows = {{fmt::format("{} step, batch {}, with sums of {} ranks", to_string(precision), scope_.batch,
                               scope_.ranks),
                   "step", CeilingUnit::tflops, "slower_of_products_and_sum"}}});
  }

  void add_memory() {
    using enum CeilingKind;
    const auto row = [this](CeilingKind kind, const char* name, const char* limit) {
      add({.kind = kind, .rows = {{name, "memory", CeilingUnit::gb_per_s, limit}}});
    };
    row(fill, "fill", "clear_bandwidth");
    row(digest, "digest", "read_bandwidth");
    row(verify, "verify", "read_bandwidth");
    row(refill, "verify and refill", "copy_bandwidth");
    row(patrol, "patrol, at rest", "read_bandwidth");
    row(update, "update of weights", "copy_bandwidth");
  }

  void add_sums() {
    for (const std::uint64_t bytes : scope_.sums)
      add({.kind = CeilingKind::all_reduce,
           .bytes = bytes,
           .rows = {{fmt::format("all-reduce of {}", format_bytes(bytes)), "sums", CeilingUnit::bus_gb_per_s,
                     "ring_of_copies"}}});
    if (!scope_.sums.empty())
      add({.kind = CeilingKind::collective,
           .bytes = scope_.sums.back(),
           .rows = {{fmt::format("all-reduce of {}, verified", format_bytes(scope_.sums.back())), "sums",
                     CeilingUnit::bus_gb_per_s, "bare_all_reduce"}}});
  }

  const CeilingScope& scope_;
  std::vector<CeilingTrial> trials_;
};

}  // namespace

std::vector<CeilingTrial> plan_ceilings(const CeilingScope& scope) {
  return Plan(scope).make();
}

CeilingPace pace_of(double trial_seconds, bool is_gpu, bool is_new) {
  constexpr double longest_burst = 0.1, sustained = 3, hot = 0.5, of_host = 0.1;
  constexpr int fewest_rounds = 3, usual_rounds = 5;
  CeilingPace pace{.warm_up = !is_gpu ? of_host : is_new ? sustained : hot};
  pace.burst = std::min(longest_burst, trial_seconds / (2 * usual_rounds));
  pace.rounds = std::max(fewest_rounds, static_cast<int>(std::lround(trial_seconds / (2 * pace.burst))));
  return pace;
}

}  // namespace egt
