#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/core/record.hpp"

namespace egt {

/// What one rank answered, one digest a question (tensor), in the order in which the tensors are made.
using Answers = std::vector<Digest>;

/// A rank that answered wrongly, or several of which at least one did.
struct Dissent {
  std::size_t question = 0;  ///< the first, in the order of making, on which it is wrong
  int rank = -1;             ///< -1: not known which; `suspects` names them
  std::vector<int> suspects;
  Blame blame = Blame::certain;
  Digest expected, actual;  ///< of the first question; of suspects: two digests that should be the same
  std::uint64_t count = 1;  ///< questions on which it is wrong
};

/// The questions to which not all ranks gave the same answer, ascending.
std::vector<std::size_t> unlike(const std::vector<Answers>& ranks);

/// That `count - 1` tensors behind the one that is named are wrong, too; empty: none is.
std::string more_tensors(std::uint64_t count);

/// Holds the ranks' answers to the same questions against each other and against the past.
///
/// `group[r]`: ranks of one device model have the same number; only they are compared. `past[r]`: what rank r
/// answered to the same questions before and was not doubted then; empty: nothing yet. The lists of a group,
/// the empty ones aside, have the same length.
///
/// The rules, question by question within a group:
/// 1. A rank that differs from its own past is wrong, whatever the others say (a repetition must give the
///    same bits): `certain`, expected is its past. So a majority that left its past is wrong, and a minority
///    that kept it is not.
/// 2. Each rank testifies for its past, or where it has none for its answer. What a strict majority testifies
///    is true; a rank that answers otherwise is wrong: `majority`.
/// 3. With no such majority, ranks that kept their past or have none, and do not all agree, are suspects.
/// 4. Where two or more left their past and now all of the group agree, the cause is more likely common to
///    them (the question was changed) than in each of them: those that left their past are suspects.
/// A rank that is wrong on any question is no witness on the others. So one that answers as its past and as
/// the majority is never blamed, and where fewer than half of a group are wrong on any question of all, each
/// of them is named, and nobody else.
///
/// Each rank is in at most one Dissent; its blame is the strongest of its questions'. Ascending by group,
/// within it by rank; suspects (rank -1, `ambiguous`, one Dissent a group) come behind. Empty: no doubt.
std::vector<Dissent> vote(const std::vector<Answers>& ranks, const std::vector<int>& group,
                          const std::vector<Answers>& past);

/// The same of one group without a past.
std::vector<Dissent> vote(const std::vector<Answers>& ranks);

/// Makes of what was not doubted the past, where there was none. `past`: one list a rank, or empty.
void remember(std::vector<Answers>& past, const std::vector<Answers>& answers,
              const std::vector<Dissent>& dissents);

}  // namespace egt
