#include "workload/common/digest_vote.hpp"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

/// Boyer-Moore majority vote: only the value that remains after pairs of different values cancel can be a
/// strict majority. A count then confirms it.
std::optional<Digest> strict_majority(const std::vector<Digest>& testimonies) {
  Digest candidate;
  std::size_t surplus = 0;
  for (const Digest& digest : testimonies) {
    if (surplus == 0) candidate = digest;
    surplus = digest == candidate ? surplus + 1 : surplus - 1;
  }
  const auto votes = std::count(testimonies.begin(), testimonies.end(), candidate);
  if (2 * static_cast<std::size_t>(votes) <= testimonies.size()) return std::nullopt;
  return candidate;
}

/// The vote within one group. Rule numbers refer to the header.
class GroupVote {
 public:
  GroupVote(const std::vector<Answers>& ranks, const std::vector<Answers>& past, std::vector<int> members)
      : ranks_(ranks), past_(past), members_(std::move(members)) {}

  std::vector<Mismatch> dissents();

 private:
  struct Wrong {
    Digest expected, actual;
    Blame blame;
  };

  std::size_t questions() const { return ranks_[index(members_.front())].size(); }
  const Digest& answer(int rank, std::size_t question) const { return ranks_[index(rank)][question]; }
  /// The past answer; without a past, the current one.
  const Digest& testimony(int rank, std::size_t question) const {
    return past_[index(rank)].empty() ? answer(rank, question) : past_[index(rank)][question];
  }
  bool left_past(int rank, std::size_t question) const {
    return testimony(rank, question) != answer(rank, question);
  }
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<int> witnesses() const;
  bool agree(const std::vector<int>& ranks, std::size_t question) const;
  void judge(std::size_t question, const std::vector<int>& witnesses);
  void accuse(std::size_t question, const std::optional<Digest>& truth);
  void suspect(std::size_t question, const std::vector<int>& ranks, const Digest& expected,
               const Digest& actual);
  Mismatch mismatch_of(int rank, const std::map<std::size_t, Wrong>& wrong) const;

  const std::vector<Answers>& ranks_;
  const std::vector<Answers>& past_;
  const std::vector<int> members_;
  std::map<int, std::map<std::size_t, Wrong>> wrong_;  // by rank, by question
  std::optional<Mismatch> undecided_;
};

std::vector<int> GroupVote::witnesses() const {
  std::vector<int> result;
  for (const int rank : members_)
    if (!wrong_.contains(rank)) result.push_back(rank);
  return result;
}

bool GroupVote::agree(const std::vector<int>& ranks, std::size_t question) const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return answer(rank, question) == answer(ranks.front(), question); });
}

/// Applies rules 1 and 2 to all members, even those already wrong elsewhere. Keeps the first evidence.
void GroupVote::accuse(std::size_t question, const std::optional<Digest>& truth) {
  for (const int rank : members_) {
    const Digest& actual = answer(rank, question);
    if (left_past(rank, question))
      wrong_[rank].try_emplace(question, Wrong{testimony(rank, question), actual, Blame::certain});
    else if (truth && actual != *truth)
      wrong_[rank].try_emplace(question, Wrong{*truth, actual, Blame::majority});
  }
}

void GroupVote::suspect(std::size_t question, const std::vector<int>& ranks, const Digest& expected,
                        const Digest& actual) {
  if (undecided_) {
    std::set<int> all(undecided_->suspects.begin(), undecided_->suspects.end());
    all.insert(ranks.begin(), ranks.end());
    undecided_->suspects.assign(all.begin(), all.end());
    ++undecided_->count;
  } else {
    undecided_ = Mismatch{question, -1, ranks, Blame::ambiguous, expected, actual, 1};
  }
}

void GroupVote::judge(std::size_t question, const std::vector<int>& witnesses) {
  std::vector<Digest> testimonies;
  std::vector<int> left, stayed;
  for (const int rank : witnesses) {
    testimonies.push_back(testimony(rank, question));
    (left_past(rank, question) ? left : stayed).push_back(rank);
  }
  if (left.size() >= 2 && agree(witnesses, question)) {  // rule 4
    suspect(question, left, testimony(left.front(), question), answer(left.front(), question));
    return;
  }
  const std::optional<Digest> truth = strict_majority(testimonies);
  accuse(question, truth);
  if (truth || agree(stayed, question)) return;
  const Digest& first = answer(stayed.front(), question);  // rule 3
  const auto other =
      std::find_if(stayed.begin(), stayed.end(), [&](int rank) { return answer(rank, question) != first; });
  suspect(question, stayed, first, answer(*other, question));
}

Mismatch GroupVote::mismatch_of(int rank, const std::map<std::size_t, Wrong>& wrong) const {
  const auto& [question, first] = *wrong.begin();
  Blame strongest = first.blame;
  for (const auto& item : wrong) strongest = std::min(strongest, item.second.blame);
  return {question, rank, {}, strongest, first.expected, first.actual, wrong.size()};
}

std::vector<Mismatch> GroupVote::dissents() {
  std::size_t known;
  do {  // at most one iteration per member: a rank found wrong loses its vote in the next one
    known = wrong_.size();
    undecided_.reset();
    const std::vector<int> now = witnesses();
    for (std::size_t question = 0; question < questions(); ++question) judge(question, now);
  } while (wrong_.size() > known);

  std::vector<Mismatch> result;
  for (const auto& [rank, wrong] : wrong_) result.push_back(mismatch_of(rank, wrong));
  if (undecided_) result.push_back(*undecided_);
  return result;
}

[[maybe_unused]] bool same_questions(const std::vector<Answers>& ranks, const std::vector<Answers>& past,
                                     const std::vector<int>& members) {
  const std::size_t count = ranks[static_cast<std::size_t>(members.front())].size();
  return std::all_of(members.begin(), members.end(), [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return ranks[r].size() == count && (past[r].empty() || past[r].size() == count);
  });
}

}  // namespace

std::vector<std::size_t> differing_questions(const std::vector<Answers>& ranks) {
  std::vector<std::size_t> questions;
  for (std::size_t q = 0; q < ranks[0].size(); ++q)
    if (std::any_of(ranks.begin(), ranks.end(), [&](const Answers& rank) { return rank[q] != ranks[0][q]; }))
      questions.push_back(q);
  return questions;
}

std::optional<Mismatch> difference(const Answers& expected, const Answers& actual) {
  std::optional<Mismatch> found;
  for (std::size_t q = 0; q < expected.size(); ++q) {
    if (expected[q] == actual[q]) continue;
    if (found)
      ++found->count;
    else
      found = Mismatch{.question = q, .suspects = {}, .expected = expected[q], .actual = actual[q]};
  }
  return found;
}

std::string more_tensors(std::uint64_t count) {
  return count > 1 ? fmt::format(", and in {} tensor{} made after it", count - 1, count == 2 ? "" : "s") : "";
}

std::vector<Mismatch> vote(const std::vector<Answers>& ranks, const std::vector<int>& group,
                           const std::vector<Answers>& past) {
  assert(group.size() == ranks.size() && past.size() == ranks.size());
  std::map<int, std::vector<int>> members;
  for (std::size_t r = 0; r < ranks.size(); ++r) members[group[r]].push_back(static_cast<int>(r));
  std::vector<Mismatch> result;
  for (const auto& item : members) {
    assert(same_questions(ranks, past, item.second));
    const std::vector<Mismatch> found = GroupVote(ranks, past, item.second).dissents();
    result.insert(result.end(), found.begin(), found.end());
  }
  return result;
}

std::vector<Mismatch> vote(const std::vector<Answers>& ranks) {
  return vote(ranks, std::vector<int>(ranks.size(), 0), std::vector<Answers>(ranks.size()));
}

void remember(std::vector<Answers>& past, const std::vector<Answers>& answers,
              const std::vector<Mismatch>& dissents) {
  past.resize(answers.size());
  std::set<int> doubted;
  for (const Mismatch& dissent : dissents) {
    doubted.insert(dissent.rank);
    doubted.insert(dissent.suspects.begin(), dissent.suspects.end());
  }
  for (std::size_t rank = 0; rank < answers.size(); ++rank)
    if (past[rank].empty() && !doubted.contains(static_cast<int>(rank))) past[rank] = answers[rank];
}

}  // namespace egt
