#include <algorithm>
#include <vector>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using Answers = std::vector<VoterAnswers>;

constexpr int iterations = 33;

/// Answers of a whole round; a voter that has no room to run at first is reached by a further call.
Answers round_of(DeviceContract& test, std::uint64_t seed, const UnitFault& fault = {}) {
  const Buffer buffer = test.upload_values(Answers(max_unit_voters));
  for (int calls = 0; calls < 5; ++calls)
    EXPECT_OK(test.device().vote({seed, iterations, buffer.as<VoterAnswers>(), fault}, test.stream()));
  return test.download_values<VoterAnswers>(buffer.data(), max_unit_voters);
}

std::vector<int> voters_of(const Answers& answers) {
  std::vector<int> voters;
  for (int i = 0; i < max_unit_voters; ++i)
    if (answers[static_cast<std::size_t>(i)].has_answered()) voters.push_back(i);
  return voters;
}

const VoterAnswers& first_of(const Answers& answers) {
  return answers[static_cast<std::size_t>(voters_of(answers).front())];
}

template <typename Formula>
std::uint64_t reference_answer(std::uint64_t seed, const Formula& formula) {
  std::uint64_t sum = 0;
  for (int lane = 0; lane < math::vote_lanes; ++lane)
    sum += math::vote_term(formula({seed, lane, iterations, 0}), lane);
  return sum;
}

}  // namespace

TEST_P(DeviceContract, EveryVoterGivesTheSameAnswers) {
  const Answers answers = round_of(*this, 11);
  const std::vector<int> voters = voters_of(answers);
  EXPECT_GE(static_cast<int>(voters.size()), is_host() ? 1 : device().info().multiprocessors);
  const VoterAnswers& first = first_of(answers);
  for (const int voter : voters) {
    const VoterAnswers& own = answers[static_cast<std::size_t>(voter)];
    EXPECT_EQ(own.parts, is_host() ? 1u : (1u << sub_partitions) - 1) << voter;
    for (int part = 0; part < (is_host() ? 1 : sub_partitions); ++part)
      for (int unit = 0; unit < compute_units; ++unit)
        EXPECT_EQ(own.digest[part][unit], first.digest[0][unit]) << voter << compute_unit_names[unit];
  }
}

TEST_P(DeviceContract, EveryUnitAnswersAndOtherOperandsGiveOtherAnswers) {
  const Answers first = round_of(*this, 11), again = round_of(*this, 11), other = round_of(*this, 12);
  const int units = is_host() ? host_units : static_cast<int>(ComputeUnit::tensor_fp8);  // which not all have
  for (int unit = 0; unit < units; ++unit) {
    EXPECT_NE(first_of(first).digest[0][unit], 0u) << compute_unit_names[unit];
    EXPECT_EQ(first_of(first).digest[0][unit], first_of(again).digest[0][unit]) << compute_unit_names[unit];
    EXPECT_NE(first_of(first).digest[0][unit], first_of(other).digest[0][unit]) << compute_unit_names[unit];
  }
}

/// Where IEEE 754 or integers define the result, it is the formula's.
TEST_P(DeviceContract, ExactUnitsGiveTheFormulasAnswers) {
  const Answers answers = round_of(*this, 13);
  const auto answer = [&](ComputeUnit unit) { return first_of(answers).digest[0][static_cast<int>(unit)]; };
  EXPECT_EQ(answer(ComputeUnit::integer), reference_answer(13, math::vote_integer));
  EXPECT_EQ(answer(ComputeUnit::branch), reference_answer(13, math::vote_branch));
  EXPECT_EQ(answer(ComputeUnit::fp32), reference_answer(13, math::vote_fp32));
  EXPECT_EQ(answer(ComputeUnit::fp64), reference_answer(13, math::vote_fp64));
}

/// Any bit of any unit's result, of the last voter only.
TEST_P(DeviceContract, AFaultOfOneUnitChangesItsAnswerAlone) {
  const Answers clean = round_of(*this, 14);
  const int voter = voters_of(clean).back(), part = is_host() ? 0 : 3;
  for (int unit = 0; unit < compute_units; ++unit) {
    if (first_of(clean).digest[0][unit] == 0) continue;
    const Answers struck =
        round_of(*this, 14, {.voter = voter, .part = part, .unit = unit, .mask = 1u << (unit * 7 % 32)});
    for (const int other : voters_of(clean))
      for (int p = 0; p < sub_partitions; ++p)
        for (int u = 0; u < compute_units; ++u) {
          const auto of = [&](const Answers& all) {
            return all[static_cast<std::size_t>(other)].digest[p][u];
          };
          const bool is_struck = other == voter && p == part && u == unit;
          EXPECT_EQ(of(struck) != of(clean), is_struck)
              << "voter " << other << ", part " << p << ", " << compute_unit_names[u];
        }
  }
}

/// A voter works once in a round.
TEST_P(DeviceContract, AFurtherCallLeavesTheAnswers) {
  const Buffer buffer = upload_values(Answers(max_unit_voters));
  for (const std::uint64_t seed : {1, 2, 2, 2, 2})
    EXPECT_OK(device().vote({seed, iterations, buffer.as<VoterAnswers>(), {}}, stream()));
  const Answers answers = download_values<VoterAnswers>(buffer.data(), max_unit_voters);
  EXPECT_EQ(first_of(answers).digest[0][0], reference_answer(1, math::vote_integer));
  EXPECT_GT(first_of(answers).claims, 1u);
}

}  // namespace egt::contract
