#include "workload/train/pass_judgement.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

const RankPasses& of_rank(const PassDigests& step, int rank) {
  return step[static_cast<std::size_t>(rank)];
}

/// True if `repeated` used the same weights as the step's first execution. Otherwise every rank's pass
/// differs.
bool is_repetition(const PassDigests& step, const PassDigests& repeated) {
  if (repeated.empty() || step.size() == 1) return !repeated.empty();
  return !std::equal(step.begin(), step.end(), repeated.begin(),
                     [](const RankPasses& a, const RankPasses& b) { return a.first != b.first; });
}

/// The verified slices of a bucket. `checked_by`: lowest rank with a wrong one.
WrongSum slices_of(const PassDigests& step, std::size_t bucket) {
  WrongSum all{.bucket = bucket, .dissent = {}};
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    const Mismatches& wrong = step[rank].wrong_in_sums[bucket];
    if (wrong.count == 0 && is_plausible(wrong)) continue;
    all.count += wrong.count;
    if (all.checked_by >= 0) continue;
    all.checked_by = static_cast<int>(rank);
    if (is_plausible(wrong)) all.sample = lowest_sample(wrong);
  }
  return all;
}

}  // namespace

std::vector<PassDifference> pass_differences(const PassDigests& step, const std::vector<int>& second_of) {
  std::vector<PassDifference> found;
  for (int rank = 0; rank < static_cast<int>(step.size()); ++rank) {
    const int of = second_of[static_cast<std::size_t>(rank)];
    if (auto differs = difference(of_rank(step, of).first, of_rank(step, rank).second))
      found.push_back({.first = of, .second = rank, .digests = std::move(*differs)});
  }
  return found;
}

std::vector<Mismatch> decide_passes(const PassDigests& step, const PassDigests& repeated,
                                    const std::vector<int>& second_of) {
  const std::vector<PassDifference> differences = pass_differences(step, second_of);
  const bool is_repeated = is_repetition(step, repeated);
  std::map<int, int> involved;  // number of differences per rank
  std::map<int, Mismatch> wrong;
  std::vector<PassDifference> open;
  const auto accuse = [&](int rank, Blame blame, Mismatch digests) {
    digests.rank = rank;
    digests.blame = blame;
    wrong.try_emplace(rank, std::move(digests));
  };
  for (const PassDifference& one : differences) {
    for (const int rank : std::set{one.first, one.second}) ++involved[rank];
    if (one.first == one.second) {
      accuse(one.first, Blame::certain, one.digests);
      continue;
    }
    bool is_decided = false;
    for (const auto& [rank, pass] :
         {std::pair(one.first, &RankPasses::first), std::pair(one.second, &RankPasses::second)})
      if (auto differs = is_repeated ? difference(of_rank(repeated, rank).*pass, of_rank(step, rank).*pass)
                                     : std::nullopt) {
        accuse(rank, Blame::certain, std::move(*differs));
        is_decided = true;
      }
    if (!is_decided) open.push_back(one);
  }
  std::set<int> suspects;
  std::optional<Mismatch> undecided;
  for (PassDifference& one : open) {
    if (wrong.contains(one.first) || wrong.contains(one.second)) continue;
    // In a ring of two, both ranks are part of both differences.
    const bool is_pair = second_of[static_cast<std::size_t>(one.first)] == one.second;
    if (!is_pair && involved[one.first] != involved[one.second]) {
      const bool is_first = involved[one.first] > involved[one.second];
      if (is_first) std::swap(one.digests.expected, one.digests.actual);
      accuse(is_first ? one.first : one.second, Blame::majority, std::move(one.digests));
      continue;
    }
    suspects.insert({one.first, one.second});
    if (!undecided) undecided = std::move(one.digests);
  }
  std::vector<Mismatch> dissents;
  for (auto& [rank, dissent] : wrong) dissents.push_back(std::move(dissent));
  if (undecided) {
    undecided->blame = Blame::ambiguous;
    undecided->suspects.assign(suspects.begin(), suspects.end());
    dissents.push_back(std::move(*undecided));
  }
  return dissents;
}

std::vector<WrongSum> wrong_sums(const PassDigests& step) {
  std::vector<WrongSum> found;
  for (std::size_t bucket = 0; bucket < step[0].sums.size(); ++bucket) {
    WrongSum wrong = slices_of(step, bucket);
    std::vector<Answers> results;
    for (const RankPasses& rank : step) results.push_back({rank.sums[bucket]});
    std::vector<Mismatch> dissents = vote(results);
    const bool is_decided = dissents.empty() || dissents.back().rank >= 0;
    const bool is_explained =
        wrong.checked_by < 0 || std::any_of(dissents.begin(), dissents.end(), [&](const Mismatch& dissent) {
          return dissent.rank == wrong.checked_by;
        });
    if (!is_decided || !is_explained) {
      Mismatch all{.suspects = std::vector<int>(step.size()),
                   .blame = Blame::ambiguous,
                   .expected = results[0][0],
                   .actual = is_decided ? results[0][0] : dissents.back().actual};
      std::iota(all.suspects.begin(), all.suspects.end(), 0);
      dissents = {std::move(all)};
    }
    for (Mismatch& dissent : dissents) {
      wrong.dissent = std::move(dissent);
      found.push_back(wrong);
    }
  }
  return found;
}

void decide_sums(std::vector<WrongSum>& wrong, const PassDigests& step, const PassDigests& repeated) {
  if (!is_repetition(step, repeated) || !wrong_sums(repeated).empty()) return;
  std::vector<WrongSum> decided;
  for (const WrongSum& one : wrong) {
    const std::vector<int>& suspects = one.dissent.suspects;
    const Digest& right = repeated[0].sums[one.bucket];
    std::vector<int> differ;
    std::copy_if(suspects.begin(), suspects.end(), std::back_inserter(differ),
                 [&](int rank) { return of_rank(step, rank).sums[one.bucket] != right; });
    if (differ.empty() || differ.size() == suspects.size()) {
      decided.push_back(one);
      continue;
    }
    for (const int rank : differ)
      decided.emplace_back(one).dissent = {.rank = rank,
                                           .suspects = {},
                                           .blame = Blame::majority,
                                           .expected = right,
                                           .actual = of_rank(step, rank).sums[one.bucket]};
  }
  wrong = std::move(decided);
}

}  // namespace egt
