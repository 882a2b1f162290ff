#include "workload/bench/scaling_digests.hpp"

#include <cstddef>
#include <set>
#include <utility>

namespace egt {

std::vector<Dissent> BenchAnswers::judge(const std::string& test, const std::vector<std::int64_t>& sizes,
                                         const std::vector<Answers>& now) {
  const std::size_t ranks = models_.size();
  std::vector<Answers> answers = now, past(ranks);
  std::vector<int> groups(ranks);
  std::map<std::pair<int, std::int64_t>, int> group_of;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (const auto known = past_.find({test, sizes[rank], static_cast<int>(rank)}); known != past_.end())
      past[rank] = known->second;
    if (answers[rank].empty()) answers[rank] = past[rank];
    const auto next = static_cast<int>(group_of.size());
    groups[rank] = group_of.try_emplace({models_[rank], sizes[rank]}, next).first->second;
    // With nothing to say it stands apart.
    if (answers[rank].empty()) groups[rank] = -1 - static_cast<int>(rank);
  }
  const std::vector<Dissent> dissents = vote(answers, groups, past);
  std::set<int> doubted;
  for (const Dissent& dissent : dissents) {
    doubted.insert(dissent.rank);
    doubted.insert(dissent.suspects.begin(), dissent.suspects.end());
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (past[rank].empty() && !answers[rank].empty() && !doubted.contains(static_cast<int>(rank)))
      past_[{test, sizes[rank], static_cast<int>(rank)}] = answers[rank];
  return dissents;
}

}  // namespace egt
