#include "workload/train/second_pass.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace egt {
namespace {

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}

/// First differing question of two lists, and the number of differences.
std::pair<std::size_t, std::uint64_t> compare(const Answers& a, const Answers& b) {
  std::size_t first = a.size();
  std::uint64_t count = 0;
  for (std::size_t q = a.size(); q-- > 0;)
    if (!(a[q] == b[q])) first = q, ++count;
  return {first, count};
}

Mismatch mismatch_of(int rank, Blame blame, const Answers& expected, const Answers& actual) {
  const auto [question, count] = compare(expected, actual);
  return {.question = question,
          .rank = rank,
          .suspects = {},
          .blame = blame,
          .expected = expected[question],
          .actual = actual[question],
          .count = count};
}

}  // namespace

bool is_repetition(const PassDigests& step, const PassDigests& repeated) {
  if (repeated.empty() || step.size() == 1) return !repeated.empty();
  for (std::size_t rank = 0; rank < step.size(); ++rank)
    if (compare(step[rank].first, repeated[rank].first).second == 0) return true;
  return false;
}

std::vector<PassDifference> pass_differences(const PassDigests& step, const std::vector<int>& second_of) {
  std::vector<PassDifference> found;
  for (int rank = 0; rank < static_cast<int>(step.size()); ++rank) {
    const int of = second_of[at(rank)];
    const auto [question, count] = compare(step[at(of)].first, step[at(rank)].second);
    if (count > 0) found.push_back({.first = of, .second = rank, .question = question, .count = count});
  }
  return found;
}

std::vector<Mismatch> decide_passes(const PassDigests& step, const PassDigests& repeated,
                                    const std::vector<int>& second_of) {
  const std::vector<PassDifference> differences = pass_differences(step, second_of);
  const bool is_repeated = is_repetition(step, repeated);
  std::map<int, int> involved;  // number of differences per rank
  for (const PassDifference& one : differences) {
    ++involved[one.first];
    if (one.second != one.first) ++involved[one.second];
  }
  std::map<int, Mismatch> wrong;
  std::vector<PassDifference> open;
  for (const PassDifference& one : differences) {
    const Answers &first = step[at(one.first)].first, &second = step[at(one.second)].second;
    bool decided = false;
    if (one.first == one.second) {
      wrong.try_emplace(one.first, mismatch_of(one.first, Blame::certain, first, second));
      decided = true;
    } else if (is_repeated) {
      for (const auto& [rank, actual, expected] :
           {std::tuple(one.first, &first, &repeated[at(one.first)].first),
            std::tuple(one.second, &second, &repeated[at(one.second)].second)})
        if (compare(*actual, *expected).second > 0) {
          wrong.try_emplace(rank, mismatch_of(rank, Blame::certain, *expected, *actual));
          decided = true;
        }
    }
    if (!decided) open.push_back(one);
  }
  std::set<int> suspects;
  const PassDifference* first_open = nullptr;
  for (const PassDifference& one : open) {
    if (wrong.contains(one.first) || wrong.contains(one.second)) continue;
    // In a ring of two, both ranks are part of both differences.
    const bool is_pair = second_of[at(one.first)] == one.second;
    const Answers &first = step[at(one.first)].first, &second = step[at(one.second)].second;
    if (!is_pair && involved[one.first] != involved[one.second]) {
      const bool is_first = involved[one.first] > involved[one.second];
      const int rank = is_first ? one.first : one.second;
      wrong.try_emplace(
          rank, mismatch_of(rank, Blame::majority, is_first ? second : first, is_first ? first : second));
      continue;
    }
    suspects.insert({one.first, one.second});
    if (first_open == nullptr) first_open = &one;
  }
  std::vector<Mismatch> dissents;
  for (auto& [rank, dissent] : wrong) dissents.push_back(std::move(dissent));
  if (first_open != nullptr) {
    dissents.push_back(mismatch_of(-1, Blame::ambiguous, step[at(first_open->first)].first,
                                   step[at(first_open->second)].second));
    dissents.back().suspects.assign(suspects.begin(), suspects.end());
  }
  return dissents;
}

}  // namespace egt
