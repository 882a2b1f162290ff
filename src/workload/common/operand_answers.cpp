#include "workload/common/operand_answers.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "egt/core/types.hpp"

namespace egt {

void AnswerList::set(const std::vector<OperandAnswer>& answers) {
  count_ = std::min(answers.size(), max_operand_answers);
  std::copy_n(answers.begin(), count_, answers_);
  digest_ = digest();
}

std::vector<OperandAnswer> AnswerList::get() const {
  if (count_ > max_operand_answers || digest() != digest_) return {};
  return {answers_, answers_ + count_};
}

Digest AnswerList::digest() const {
  Digest digest;
  std::uint64_t index = 0;
  const auto add = [&](std::uint64_t word) {
    for (const std::uint64_t half : {word, word >> 32})
      add_to_digest(digest.a, digest.b, index++, static_cast<std::uint32_t>(half));
  };
  add(count_);
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto& [name, precision, rows, pairs, answer] = answers_[i];
    for (const std::uint64_t word :
         {name, std::uint64_t{precision}, std::uint64_t{rows}, std::uint64_t{pairs}, answer.a, answer.b})
      add(word);
  }
  return digest;
}

std::vector<AnswerMismatch> AnswerComparison::compare(const std::vector<std::vector<OperandAnswer>>& ranks,
                                                      const std::vector<int>& group) {
  std::map<Key, std::map<int, Digest>> questions;  // inner key: rank
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (const auto& [name, precision, rows, pairs, digest] : ranks[rank])
      questions[{group[rank], name, precision, rows, pairs}][static_cast<int>(rank)] = digest;
  std::vector<AnswerMismatch> dissents;
  std::set<int> reported;
  std::map<Key, std::size_t> now;
  for (const auto& [key, digests] : questions) {
    const auto& [model, name, precision, rows, pairs] = key;
    // Three answers can give a majority, so two are not compared before the third arrives.
    const auto fewest = std::min<std::ptrdiff_t>(std::count(group.begin(), group.end(), model), 3);
    const auto before = last_.find(key);
    now[key] = digests.size();
    if (std::ssize(digests) < std::max<std::ptrdiff_t>(fewest, 2) ||
        (before != last_.end() && before->second >= digests.size()))
      continue;
    std::vector<int> members;
    std::vector<Answers> answers;
    for (const auto& [rank, digest] : digests) {
      members.push_back(rank);
      answers.push_back({digest});
    }
    ++compared_;
    for (Mismatch& dissent : vote(answers)) {
      const auto member = [&](int index) { return members[static_cast<std::size_t>(index)]; };
      if (dissent.rank >= 0) dissent.rank = member(dissent.rank);
      for (int& suspect : dissent.suspects) suspect = member(suspect);
      if (reported.insert(dissent.rank).second)
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
