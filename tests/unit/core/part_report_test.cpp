#include "egt/core/part_report.hpp"

#include <gtest/gtest.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// `amount` of that kind and none of the others.
VerifiedWork work_of(const WorkField& field, std::uint64_t amount) {
  return work_from_json({{field.key, amount}});
}

TEST(VerifiedWork, EachKindIsAddedAndKeptInJson) {
  for (const WorkField& field : work_fields) {
    VerifiedWork sum = work_of(field, 5);
    EXPECT_TRUE(any(sum)) << field.key;
    add(sum, work_of(field, 7));
    for (const WorkField& other : work_fields) {
      EXPECT_EQ(any(sum, other), other.key == field.key) << field.key << ", " << other.key;
      EXPECT_EQ(work_to_json(sum)[other.key], other.key == field.key ? 12 : 0) << other.key;
    }
  }
  EXPECT_FALSE(any(VerifiedWork()));
  EXPECT_EQ(work_to_json({}).size(), std::size(work_fields));
}

TEST(VerifiedWork, LargeCountsStayExact) {
  const std::uint64_t odd = (std::uint64_t{1} << 63) + 1;  // not representable as a double
  EXPECT_EQ(work_from_json({{"bytes_patrolled", odd}}).bytes_patrolled, odd);
  EXPECT_EQ(work_to_json(work_from_json({{"replays", odd}}))["replays"], odd);
}

TEST(VerifiedWork, AmountsHaveTheirUnits) {
  const VerifiedWork work =
      work_from_json({{"gemm_flops", 8.25e15}, {"replays", 520}, {"bytes_patrolled", 97'700'000'000'000}});
  std::vector<std::string> texts;
  for (const WorkField& field : work_fields)
    if (any(work, field)) texts.push_back(amount_text(work, field));
  EXPECT_EQ(texts, (std::vector<std::string>{"8.25 PFLOP", "520", "97.7 TB"}));
}

TEST(LoadFigures, TimesOfPartsAreAdded) {
  LoadFigures sum;
  for (const auto& [share, seconds] : load_fields) {
    LoadFigures part;
    part.*seconds = 1.5;
    add(sum, part);
    EXPECT_EQ(sum.*seconds, 1.5) << share;
    add(sum, part);
    EXPECT_EQ(sum.*seconds, 3.0) << share;
  }
}

}  // namespace
}  // namespace egt
