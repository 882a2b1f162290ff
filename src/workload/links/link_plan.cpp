#include "workload/links/link_plan.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace egt {
namespace {

constexpr std::size_t min_ranks_for_rounds = 4;  ///< with fewer, a round is one pair, already measured
constexpr std::size_t max_again = 8;             ///< repeated trials; with more slow pairs, the node is slow
constexpr int fewest_repeats = 3;                ///< with fewer, a median means little

/// Pairs of round `round` of a round-robin tournament by the circle method: the last player stays, the others
/// rotate. With an odd number of ranks the last player is a dummy.
std::vector<LinkTrial::Pair> tournament_round(int ranks, int round) {
  const int players = ranks + ranks % 2, moving = players - 1;
  const auto player = [&](int place) { return place == moving ? moving : (place + round) % moving; };
  std::vector<LinkTrial::Pair> pairs;
  for (int i = 0; i < players / 2; ++i) {
    const int a = player(i == 0 ? moving : i), b = player(i == 0 ? 0 : moving - i);
    if (std::max(a, b) < ranks) pairs.emplace_back(std::min(a, b), std::max(a, b));
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

TransferRow row_of(std::uint64_t bytes, std::uint64_t buffer, const LinkLimits& limits,
                   const PairProbe& probe) {
  const double seconds = probe.min_seconds + static_cast<double>(bytes) / probe.bytes_per_second;
  const double wanted = std::ceil(limits.row_seconds / std::max(seconds, 1e-9));
  const auto room = static_cast<double>(std::min(buffer, limits.row_bytes) / bytes);
  const double most = std::max(1.0, std::min<double>(room, limits.max_in_row));
  return {.bytes = bytes, .count = static_cast<int>(std::clamp(wanted, 1.0, most))};
}

double seconds_of(const PairPlan& plan, const LinkLimits& limits, const PairProbe& probe) {
  constexpr double passes = 4;  // one way, other way, both at once (may need as long as both in sequence)
  double sum = 0;
  for (const TransferRow& row : plan.rows) {
    const auto bytes = static_cast<double>(row.total());
    sum += row.count * probe.min_seconds + bytes / probe.bytes_per_second +
           bytes * limits.upkeep_seconds_per_byte;
  }
  return sum * passes * plan.repeats;
}

}  // namespace

int LinkTrial::partner_of(int one) const {
  for (const auto& [a, b] : pairs) {
    if (a == one) return b;
    if (b == one) return a;
  }
  return -1;
}

std::vector<LinkTrial> plan_link_trials(const std::vector<std::string>& host_ids) {
  const int ranks = static_cast<int>(host_ids.size());
  std::vector<LinkTrial> trials;
  for (const LinkMethod method : {LinkMethod::exchange, LinkMethod::copy})
    for (int a = 0; a < ranks; ++a)
      for (int b = a + 1; b < ranks; ++b)
        if (method == LinkMethod::exchange ||
            host_ids[static_cast<std::size_t>(a)] == host_ids[static_cast<std::size_t>(b)])
          trials.push_back({.kind = LinkTrial::Kind::pair, .pairs = {{a, b}}, .method = method});
  const std::size_t again = std::min(max_again, 2 * trials.size());
  for (std::size_t i = 0; i < again; ++i) trials.push_back({.kind = LinkTrial::Kind::again});
  if (host_ids.size() >= min_ranks_for_rounds)
    for (int round = 0; round < ranks - 1 + ranks % 2; ++round)
      trials.push_back({.kind = LinkTrial::Kind::round, .pairs = tournament_round(ranks, round)});
  for (int rank = 0; rank < ranks; ++rank) trials.push_back({.kind = LinkTrial::Kind::host, .rank = rank});
  if (ranks > 1)
    for (const CollectiveKind collective : link_collectives)
      trials.push_back({.kind = LinkTrial::Kind::collective, .collective = collective});
  return trials;
}

std::vector<std::uint64_t> link_sizes(std::uint64_t largest) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = 8; size < largest && sizes.size() + 1 < max_link_sizes; size *= 8)
    sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

LinkLimits link_limits(bool is_gpu, double timeout_seconds) {
  LinkLimits limits;
  limits.trial_seconds = std::min(limits.trial_seconds, timeout_seconds / 4);
  if (is_gpu) {
    limits.upkeep_seconds_per_byte = 1e-12;
  } else {
    limits.max_in_row = 64;
    limits.row_bytes = 2 << 20;
    limits.upkeep_seconds_per_byte = 1e-9;
  }
  return limits;
}

PairPlan plan_pair(const LinksOptions& options, const LinkLimits& limits, const PairProbe& probe) {
  const std::vector<std::uint64_t> all = link_sizes(options.size);
  PairPlan plan;
  for (std::size_t sizes = all.size(); sizes > 0; --sizes) {
    plan.rows.clear();
    for (std::size_t i = 0; i < sizes; ++i) plan.rows.push_back(row_of(all[i], options.size, limits, probe));
    for (int repeats = options.repeats;; repeats = std::max(repeats / 2, fewest_repeats)) {
      plan.repeats = std::min(repeats, options.repeats);
      if (seconds_of(plan, limits, probe) <= limits.trial_seconds) return plan;
      if (plan.repeats <= fewest_repeats) break;
    }
  }
  return plan;
}

}  // namespace egt
