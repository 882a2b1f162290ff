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

/// Result of one block's GEMMs. It is equal on all ranks of a device model if the other fields are equal.
struct OperandAnswer {
  std::uint64_t name = 0;  ///< of the operands; with the run's seed it determines their bits
  std::uint32_t precision = 0, rows = 0, pairs = 0;  ///< Precision; rows of a result; operand pairs
  Digest digest;
};

/// Max answers per exchange; the newest are sent.
constexpr std::size_t max_operand_answers = 64;

/// Wire format of the exchange. A list corrupted by a link reads as empty, so it accuses no rank's GEMMs.
class AnswerList {
 public:
  void set(const std::vector<OperandAnswer>& answers);
  std::vector<OperandAnswer> get() const;

 private:
  Digest digest() const;

  std::uint64_t count_ = 0;
  OperandAnswer answers_[max_operand_answers];
  Digest digest_;  ///< of count_ and answers_
};

/// Ranks whose answers differ.
struct AnswerMismatch {
  OperandAnswer answer;  ///< without its digest
  Mismatch dissent;
};

/// Compares answers given by two or more ranks of a group, each answer of a rank once. Collective.
class AnswerComparison {
 public:
  /// `ranks`: newest answers of each rank, possibly repeated from earlier calls. `group[r]`: equal for ranks
  /// of one device model. `vote` decides which rank is wrong. In a group of three or more, the comparison
  /// waits for a third answer. Returns at most one mismatch per rank, and one of suspects.
  std::vector<AnswerMismatch> compare(const std::vector<std::vector<OperandAnswer>>& ranks,
                                      const std::vector<int>& group);
  /// Number of questions compared so far.
  std::uint64_t compared() const { return compared_; }

 private:
  /// Group, name, precision, rows, pairs.
  using Key = std::tuple<int, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<Key, std::size_t> last_;  ///< number of ranks that had answered, at the last call
  std::uint64_t compared_ = 0;
};

/// "int8 products of 8192 x 8192, operand 7".
std::string describe(const OperandAnswer& answer);

}  // namespace egt
