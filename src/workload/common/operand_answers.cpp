#include "workload/common/operand_answers.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "egt/core/types.hpp"

namespace egt {

std::vector<AnswerDissent> AnswerComparison::compare(const std::vector<std::vector<OperandAnswer>>& ranks,
                                                     const std::vector<int>& group) {
  std::map<Key, std::map<int, Digest>> questions;  // by rank
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const auto& [name, precision, rows, pairs, digest] : ranks[rank])
      questions[{name, precision, rows, pairs}][static_cast<int>(rank)] = digest;
  // Of three there may be a majority: two are not compared before the third has answered.
  const std::size_t fewest = std::min<std::size_t>(ranks.size(), 3);
  std::vector<AnswerDissent> dissents;
  std::set<int> told;
  std::map<Key, std::size_t> now;
  for (const auto& [key, digests] : questions) {
    now[key] = digests.size();
    const auto before = last_.find(key);
    if (digests.size() < fewest || (before != last_.end() && before->second >= digests.size())) continue;
    std::vector<int> members, groups;
    std::vector<Answers> answers;
    for (const auto& [rank, digest] : digests) {
      members.push_back(rank);
      groups.push_back(group[static_cast<std::size_t>(rank)]);
      answers.push_back({digest});
    }
    compared_ += std::set(groups.begin(), groups.end()).size() < groups.size();
    for (Dissent& dissent : vote(answers, groups, std::vector<Answers>(answers.size()))) {
      const auto member = [&](int index) { return members[static_cast<std::size_t>(index)]; };
      if (dissent.rank >= 0) dissent.rank = member(dissent.rank);
      for (int& suspect : dissent.suspects) suspect = member(suspect);
      const auto& [name, precision, rows, pairs] = key;
      if (told.insert(dissent.rank).second)
        dissents.push_back({{name, precision, rows, pairs, {}}, std::move(dissent)});
    }
  }
  last_ = std::move(now);
  return dissents;
}

std::string describe(const OperandAnswer& answer) {
  return fmt::format("{} products of {} x {}, operand {}",
                     to_string(static_cast<Precision>(answer.precision)), answer.rows, answer.rows,
                     answer.name);
}

}  // namespace egt
