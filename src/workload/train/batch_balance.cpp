#include "workload/train/batch_balance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "model/mlp_trainer.hpp"

namespace egt {

namespace {

constexpr double min_gain = 1.02;  ///< a smaller gain is noise, and new GEMM shapes have a cost
constexpr std::int64_t settle_steps = MlpTrainer::depth + 2;  ///< delay of measurements; an epoch is longer
constexpr std::int64_t min_steps = 20;                        ///< for a mean

/// GEMMs are tiled, so an even share has at least 32 grains of at most 64 samples.
std::int64_t grain_of(std::int64_t even) {
  constexpr std::int64_t grains = 32, most = 64;
  return std::min(most, static_cast<std::int64_t>(std::bit_floor(
                            static_cast<std::uint64_t>(std::max<std::int64_t>(even / grains, 1)))));
}

double slowest(const std::vector<std::int64_t>& samples, const std::vector<double>& ms_per_sample) {
  double ms = 0;
  for (std::size_t rank = 0; rank < samples.size(); ++rank)
    ms = std::max(ms, static_cast<double>(samples[rank]) * ms_per_sample[rank]);
  return ms;
}

}  // namespace

BatchShare share_batch(std::int64_t global, int rank, int size) {
  const std::int64_t each = global / size, rest = global % size;
  return {.global = global,
          .first = rank * each + std::min<std::int64_t>(rank, rest),
          .local = each + (rank < rest ? 1 : 0)};
}

/// Greedy: each grain goes to the rank that would complete it first.
std::vector<std::int64_t> balanced_samples(std::int64_t global, const std::vector<double>& ms_per_sample,
                                           std::int64_t grain, const std::vector<std::int64_t>& most) {
  std::vector<std::int64_t> samples(ms_per_sample.size(), 0);
  using Turn = std::tuple<bool, double, std::size_t>;  // has samples already; completion time; rank
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns;
  for (std::size_t rank = 0; rank < samples.size(); ++rank) turns.emplace(false, 0, rank);
  for (std::int64_t left = global; left > 0 && !turns.empty();) {
    const std::size_t rank = std::get<std::size_t>(turns.top());
    turns.pop();
    const std::int64_t given = std::min({grain, left, most[rank] - samples[rank]});
    samples[rank] += given;
    left -= given;
    if (samples[rank] < most[rank])
      turns.emplace(true, static_cast<double>(samples[rank] + grain) * ms_per_sample[rank], rank);
  }
  return samples;
}

BatchBalance::BatchBalance(const BatchShare& even, const RankPlace& place, std::vector<std::int64_t> most,
                           std::int64_t unit)
    : place_(place), global_(even.global), most_(std::move(most)), unit_(unit) {
  for (std::int64_t& samples : most_) samples -= samples % unit_;
  for (int rank = 0; rank < place_.size; ++rank)
    even_.push_back(share_batch(even.global, rank, place_.size).local);
  changes_.push_back({0, even_});
}

BatchShare BatchBalance::share_of(std::int64_t step, int rank) const {
  const auto in_force = std::find_if(changes_.rbegin(), changes_.rend(),
                                     [&](const Change& change) { return change.from <= step; });
  const auto& samples = in_force == changes_.rend() ? changes_.front().samples : in_force->samples;
  const auto own = samples.begin() + rank;
  return {.global = global_, .first = std::accumulate(samples.begin(), own, std::int64_t{0}), .local = *own};
}

std::int64_t BatchBalance::max_samples(int rank) const {
  return most_.empty() ? even_.front() : most_[static_cast<std::size_t>(rank)];
}

void BatchBalance::add(std::int64_t step, Precision precision, const std::vector<double>& all_compute_ms) {
  if (most_.empty() || step < std::max(epoch_, changes_.back().from) + settle_steps) return;
  if (all_compute_ms.size() != even_.size() ||
      !std::all_of(all_compute_ms.begin(), all_compute_ms.end(),
                   [](double ms) { return std::isfinite(ms) && ms > 0; }))
    return;
  Times& times = times_[precision];
  times.sums_ms.resize(even_.size());
  std::vector<double> ms_per_sample(even_.size());
  for (std::size_t rank = 0; rank < even_.size(); ++rank) {
    times.sums_ms[rank] += all_compute_ms[rank];
    ms_per_sample[rank] = all_compute_ms[rank] / static_cast<double>(even_[rank]);
  }
  ++times.steps;
  even_ms_ += slowest(even_, ms_per_sample);
  balanced_ms_ += slowest(samples(), ms_per_sample);
}

void BatchBalance::end_epoch(std::int64_t step, Precision next) {
  epoch_ = step + 1;
  const std::vector<double>* newest = nullptr;
  for (auto& [precision, times] : times_) {
    if (times.steps < min_steps) continue;
    times.ms_per_sample = std::exchange(times.sums_ms, {});
    for (std::size_t rank = 0; rank < even_.size(); ++rank)
      times.ms_per_sample[rank] /= static_cast<double>(times.steps * even_[rank]);
    times.steps = 0;
    newest = &times.ms_per_sample;
  }
  const std::vector<double>& own = times_[next].ms_per_sample;
  const std::vector<double>* wanted = own.empty() ? newest : &own;
  if (wanted == nullptr) return;
  auto samples = balanced_samples(global_, *wanted, std::max(unit_, grain_of(global_ / place_.size)), most_);
  if (slowest(this->samples(), *wanted) >= min_gain * slowest(samples, *wanted))
    changes_.push_back({step + MlpTrainer::depth + 1, std::move(samples)});  // no such step is enqueued yet
}

void BatchBalance::restart(std::int64_t next_step) {
  std::erase_if(changes_, [&](const Change& change) { return change.from > next_step; });
  if (changes_.size() > 1) changes_.push_back({next_step, even_});
  times_.clear();
  epoch_ = next_step;
}

Json BatchBalance::figures() const {
  return {{"batch", samples()[static_cast<std::size_t>(place_.rank)]},
          {"batch_changes", changes_.size() - 1},
          {"balance_gain", balanced_ms_ > 0 ? Json(even_ms_ / balanced_ms_) : Json(nullptr)}};
}

}  // namespace egt
