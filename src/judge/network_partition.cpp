#include "judge/network_partition.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

int lost_rank(const Record& loss) {
  return value_at<int>(loss.body, "rank").value_or(-1);
}

struct Sides {
  std::set<int> here, there;
};

/// Starting from the first loss: who calls somebody lost is on the other side.
Sides sides_of(const std::vector<const Record*>& losses) {
  Sides sides{.here = {losses.front()->rank}, .there = {}};
  for (std::size_t known = 0; known != sides.here.size() + sides.there.size();) {
    known = sides.here.size() + sides.there.size();
    for (const Record* loss : losses) {
      const int lost = lost_rank(*loss);
      const bool from_there = sides.there.contains(loss->rank) || sides.here.contains(lost);
      const bool from_here = sides.here.contains(loss->rank) || sides.there.contains(lost);
      if (from_here) sides.here.insert(loss->rank), sides.there.insert(lost);
      if (from_there) sides.there.insert(loss->rank), sides.here.insert(lost);
    }
  }
  return sides;
}

/// "ranks 0, 1 on node1", of those that were called lost.
std::string name_side(const std::set<int>& side, const std::vector<const Record*>& losses) {
  std::set<int> ranks;
  std::set<std::string> hosts;
  for (const Record* loss : losses)
    if (side.contains(lost_rank(*loss))) {
      ranks.insert(lost_rank(*loss));
      hosts.insert(text_at(loss->body, "hostname"));
    }
  return fmt::format("rank{} {} on {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "),
                     fmt::join(hosts, ", "));
}

}  // namespace

std::optional<NetworkPartition> find_partition(const std::vector<const Record*>& losses) {
  NetworkPartition partition;
  double seconds = 0;
  for (const Record* loss : losses) {
    if (text_at(loss->body, "how") != to_string(Loss::How::silent)) continue;
    partition.losses.push_back(loss);
    seconds = std::max(seconds, value_at<double>(loss->body, "seconds").value_or(0));
  }
  if (partition.losses.empty()) return std::nullopt;
  const Sides sides = sides_of(partition.losses);
  const auto told_by = [&](const std::set<int>& side) {
    return std::any_of(partition.losses.begin(), partition.losses.end(),
                       [&](const Record* loss) { return side.contains(loss->rank); });
  };
  const bool clean = std::none_of(sides.here.begin(), sides.here.end(),
                                  [&](int rank) { return sides.there.contains(rank); });
  if (!clean || !told_by(sides.here) || !told_by(sides.there)) return std::nullopt;
  std::set<int> low = sides.here, high = sides.there;
  if (*high.begin() < *low.begin()) std::swap(low, high);
  partition.text = fmt::format("{} and {} did not hear each other for {:.1f} s: the network between them",
                               name_side(low, partition.losses), name_side(high, partition.losses), seconds);
  return partition;
}

}  // namespace egt
