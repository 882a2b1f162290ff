#include "workload/common/operand_answers.hpp"

#include <cstring>

#include <gtest/gtest.h>

namespace egt {
namespace {

OperandAnswer answer(std::uint64_t name, std::uint64_t digest) {
  return {.name = name, .precision = 4, .rows = 64, .pairs = 2, .digest = {digest, 1}};
}

TEST(OperandAnswers, AListThatALinkHasChangedIsEmpty) {
  AnswerList list;
  EXPECT_TRUE(list.get().empty());
  list.set({answer(1, 10), answer(2, 20)});
  ASSERT_EQ(list.get().size(), 2u);
  EXPECT_EQ(list.get()[1].digest, (Digest{20, 1}));
  list.set(std::vector<OperandAnswer>(max_operand_answers + 1, answer(1, 10)));
  EXPECT_EQ(list.get().size(), max_operand_answers);
  list.set({answer(1, 10), answer(2, 20)});
  int seen = 0;
  for (std::size_t byte = 0; byte < sizeof list; ++byte) {
    AnswerList changed = list;
    auto* const bytes = reinterpret_cast<unsigned char*>(&changed);
    bytes[byte] ^= 0x10;
    if (changed.get().size() == 2) continue;  // part of an unused field or of padding
    EXPECT_TRUE(changed.get().empty()) << byte;
    ++seen;
  }
  EXPECT_GE(seen, 8 + 2 * 36 + 16) << "the number, both answers, the digest";
}

TEST(OperandAnswers, TheRankThatIsUnlikeTheOthersIsWrong) {
  AnswerComparison comparison;
  const auto found = comparison.compare(
      {{answer(1, 10), answer(2, 20)}, {answer(2, 20), answer(1, 11)}, {answer(1, 10), answer(3, 30)}},
      {0, 0, 0});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].answer.name, 1u);
  EXPECT_EQ(found[0].dissent.rank, 1);
  EXPECT_EQ(found[0].dissent.blame, Blame::majority);
  EXPECT_EQ(comparison.compared(), 1u) << "the others were given by two or one";
}

TEST(OperandAnswers, OfThreeRanksTwoAreNoMajority) {
  AnswerComparison comparison;
  EXPECT_TRUE(comparison.compare({{answer(1, 10)}, {answer(1, 11)}, {}}, {0, 0, 0}).empty());
  const auto found = comparison.compare({{answer(1, 10)}, {answer(1, 11)}, {answer(1, 11)}}, {0, 0, 0});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].dissent.rank, 0);
  EXPECT_TRUE(comparison.compare({{answer(1, 10)}, {answer(1, 11)}, {answer(1, 11)}}, {0, 0, 0}).empty())
      << "told once";
}

TEST(OperandAnswers, OfTwoRanksBothAreSuspects) {
  AnswerComparison comparison;
  const auto found = comparison.compare({{answer(1, 10)}, {answer(1, 11)}}, {0, 0});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].dissent.rank, -1);
  EXPECT_EQ(found[0].dissent.suspects, (std::vector<int>{0, 1}));
}

TEST(OperandAnswers, EachModelHasItsOwnRanks) {
  AnswerComparison comparison;
  const auto found =
      comparison.compare({{answer(1, 10)}, {answer(1, 10)}, {answer(1, 30)}, {answer(1, 31)}}, {0, 0, 2, 2});
  ASSERT_EQ(found.size(), 1u) << "two are all that there are of a model";
  EXPECT_EQ(found[0].dissent.suspects, (std::vector<int>{2, 3}));
  EXPECT_EQ(comparison.compared(), 2u);
}

TEST(OperandAnswers, OnlyRanksOfOneModelAreCompared) {
  AnswerComparison comparison;
  EXPECT_TRUE(comparison.compare({{answer(1, 10)}, {answer(1, 11)}}, {0, 1}).empty());
  EXPECT_EQ(comparison.compared(), 0u);
}

}  // namespace
}  // namespace egt
