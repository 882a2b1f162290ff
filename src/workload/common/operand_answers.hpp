#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "egt/core/digest.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// What the products of one block gave: the same on all ranks of a device model where the other fields are.
struct OperandAnswer {
  std::uint64_t name = 0;  ///< of the operands, whose bits follow from it and the run's seed
  std::uint32_t precision = 0, rows = 0, pairs = 0;  ///< Precision; of a result; of operands
  Digest digest;
};

/// That ranks exchange at once: the newest.
constexpr std::size_t most_operand_answers = 64;

/// As ranks exchange them: a list that a link has changed is empty, and so accuses nobody's products.
class AnswerList {
 public:
  void set(const std::vector<OperandAnswer>& answers);
  std::vector<OperandAnswer> get() const;

 private:
  Digest digest() const;

  std::uint64_t count_ = 0;
  OperandAnswer answers_[most_operand_answers];
  Digest digest_;  ///< of the above
};

/// Ranks that did not give the same answer.
struct AnswerDissent {
  OperandAnswer answer;  ///< its digest aside
  Dissent dissent;
};

/// Compares those answers that two ranks or more of a group gave, each answer of a rank once. All ranks make
/// the same calls.
class AnswerComparison {
 public:
  /// `ranks`: of each, its newest answers, some of which may have come before. `group[r]`: ranks of one
  /// device model have the same. Who is wrong: see `vote`; in a group of three or more, the answers of two
  /// are not compared before a third is there. At most one dissent of each rank, and one of suspects.
  std::vector<AnswerDissent> compare(const std::vector<std::vector<OperandAnswer>>& ranks,
                                     const std::vector<int>& group);
  /// Questions that ranks of one group answered both so far.
  std::uint64_t compared() const { return compared_; }

 private:
  /// Group, name, precision, rows, pairs.
  using Key = std::tuple<int, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<Key, std::size_t> last_;  ///< of the last call: how many ranks answered
  std::uint64_t compared_ = 0;
};

/// "int8 products of 8192 x 8192, operand 7".
std::string describe(const OperandAnswer& answer);

}  // namespace egt
