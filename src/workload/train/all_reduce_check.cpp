#include "workload/train/all_reduce_check.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

/// Verified slices of one bucket.
struct Slices {
  int first_wrong = -1;  ///< lowest rank with a wrong slice
  std::uint64_t count = 0;
  std::optional<Mismatches::Sample> sample = {};
};

Slices slices_of(const PassDigests& step, std::size_t bucket) {
  Slices all;
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    const Mismatches& wrong = step[rank].wrong_in_sums[bucket];
    if (wrong.count == 0 && is_plausible(wrong)) continue;
    all.count += wrong.count;
    if (all.first_wrong >= 0) continue;
    all.first_wrong = static_cast<int>(rank);
    if (is_plausible(wrong)) all.sample = lowest_sample(wrong);
  }
  return all;
}

Mismatch suspects_of(std::size_t ranks, const Digest& a, const Digest& b) {
  Mismatch dissent{
      .question = 0, .rank = -1, .suspects = {}, .blame = Blame::ambiguous, .expected = a, .actual = b};
  dissent.suspects.resize(ranks);
  std::iota(dissent.suspects.begin(), dissent.suspects.end(), 0);
  return dissent;
}

}  // namespace

std::vector<WrongSum> wrong_sums(const PassDigests& step) {
  std::vector<WrongSum> found;
  for (std::size_t bucket = 0; bucket < step[0].sums.size(); ++bucket) {
    std::vector<Answers> results;
    for (const MlpTrainer::PassDigests& rank : step) results.push_back({rank.sums[bucket]});
    const Slices slices = slices_of(step, bucket);
    std::vector<Mismatch> dissents = vote(results);
    const bool is_decided = std::all_of(dissents.begin(), dissents.end(),
                                        [](const Mismatch& dissent) { return dissent.rank >= 0; });
    const bool is_explained = std::any_of(dissents.begin(), dissents.end(), [&](const Mismatch& dissent) {
      return dissent.rank == slices.first_wrong;
    });
    if (!is_decided || (slices.first_wrong >= 0 && !is_explained)) {
      const Digest& other = is_decided ? results[0][0] : dissents.back().actual;
      dissents = {suspects_of(step.size(), results[0][0], other)};
    }
    for (Mismatch& dissent : dissents)
      found.push_back({.bucket = bucket,
                       .dissent = std::move(dissent),
                       .checked_by = slices.first_wrong,
                       .sample = slices.sample,
                       .count = slices.count});
  }
  return found;
}

void decide_sums(std::vector<WrongSum>& wrong, const PassDigests& step, const PassDigests& repeated) {
  if (!is_repetition(step, repeated) || !wrong_sums(repeated).empty()) return;
  std::vector<WrongSum> decided;
  for (const WrongSum& one : wrong) {
    std::vector<int> differ;
    const Digest& right = repeated[0].sums[one.bucket];
    for (const int rank : one.dissent.suspects)
      if (!(step[static_cast<std::size_t>(rank)].sums[one.bucket] == right)) differ.push_back(rank);
    if (differ.empty() || differ.size() == one.dissent.suspects.size()) {
      decided.push_back(one);
      continue;
    }
    for (const int rank : differ) {
      decided.push_back(one);
      decided.back().dissent.rank = rank;
      decided.back().dissent.suspects.clear();
      decided.back().dissent.blame = Blame::majority;
      decided.back().dissent.expected = right;
      decided.back().dissent.actual = step[static_cast<std::size_t>(rank)].sums[one.bucket];
    }
  }
  wrong = std::move(decided);
}

}  // namespace egt
