#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "model/digest_exchange.hpp"

namespace egt {

/// A rank with a wrong answer, or suspects that include a rank with one.
struct Mismatch {
  std::size_t question = 0;  ///< first wrong question, in order of computation
  int rank = -1;             ///< -1: unknown, see `suspects`
  std::vector<int> suspects;
  Blame blame = Blame::certain;
  Digest expected, actual;  ///< of the first question; for suspects: two digests that should be equal
  std::uint64_t count = 1;  ///< number of wrong questions
};

/// Questions on which the ranks' answers differ, ascending.
std::vector<std::size_t> differing_questions(const std::vector<Answers>& ranks);

/// How the answers of a rank differ from the expected ones, without rank; std::nullopt if they are equal.
std::optional<Mismatch> difference(const Answers& expected, const Answers& actual);

/// Text: `count - 1` further tensors after the reported one are wrong; empty if none.
std::string more_tensors(std::uint64_t count);

/// Compares the ranks' answers to the same questions with each other and with their past answers.
///
/// `group[r]`: equal for ranks of the same device model; only these are compared. `past[r]`: trusted earlier
/// answers of rank r to the same questions, or empty. The non-empty lists of a group have the same length.
///
/// Rules, per question within a group:
/// 1. A rank that differs from its own past is wrong, whatever the other ranks answer, because a repetition
///    must be bit-identical. Blame is `certain`, and expected is its past. So a majority can be wrong.
/// 2. Each rank's vote is its past answer, or its current one if it has no past. A strict majority of votes
///    is the truth. A rank with another answer is wrong: `majority`.
/// 3. Without such a majority, ranks that match their past or have none, and do not all agree, are suspects.
/// 4. If two or more ranks left their past and now the whole group agrees, a common cause (a changed
///    question) is more likely than a fault in each. The ranks that left their past are suspects.
/// A rank that is wrong on any question has no vote on other questions. So a rank that matches its past and
/// the majority is never blamed. If fewer than half of a group are wrong on any question, exactly these are
/// reported.
///
/// Each rank is in at most one Mismatch, with the strongest blame over its questions. They are sorted by
/// group, then rank. Suspects follow (rank -1, `ambiguous`, one Mismatch per group). Empty: no mismatch.
std::vector<Mismatch> vote(const std::vector<Answers>& ranks, const std::vector<int>& group,
                           const std::vector<Answers>& past);

/// The same for a single group without a past.
std::vector<Mismatch> vote(const std::vector<Answers>& ranks);

/// Stores undoubted answers as the past of ranks that have none. `past`: one list per rank, or empty.
void remember(std::vector<Answers>& past, const std::vector<Answers>& answers,
              const std::vector<Mismatch>& dissents);

}  // namespace egt
