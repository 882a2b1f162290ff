#include "workload/train/gemm_audit.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gemm_audit_fixture.hpp"

namespace egt::test {
namespace {

TEST(GemmAudit, NanAndInfinityAreFoundInEveryPrecision) {
  Bench bench;
  for (const Precision precision : precisions)
    for (const double value : {nan_value, infinity, -infinity}) {
      const Product product = bench.product(3, 4, 9, {.precision = precision});
      set(product.gemm.d, 2, 1, value);
      const auto findings = bench.checksum(product).findings;
      ASSERT_EQ(findings.size(), 1u) << to_string(precision) << " " << value;
      EXPECT_TRUE(findings[0].not_finite);
      EXPECT_EQ(findings[0].row, 2);
      EXPECT_EQ(findings[0].rows_wrong, 1u);
    }
}

TEST(GemmAudit, NanFromAnOperandIsRightAndMustReachTheResult) {
  Bench bench;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16})
    for (const double value : {nan_value, infinity}) {
      const Product product = bench.product(6, 5, 9, {.precision = precision});
      set(product.gemm.a, 2, 1, value);
      bench.run(product);
      EXPECT_THAT(bench.checksum(product).findings, testing::IsEmpty()) << to_string(precision);
      EXPECT_THAT(bench.host_sample(product).findings, testing::IsEmpty()) << to_string(precision);
      for (std::int64_t j = 0; j < 5; ++j) set(product.gemm.d, 2, j, 0.5);
      const auto findings = bench.checksum(product).findings;
      ASSERT_EQ(findings.size(), 1u) << to_string(precision);
      EXPECT_EQ(findings[0].row, 2);
    }
}

TEST(GemmAudit, OverflowToInfinityIsRightOnlyWhereTheExactValueOverflows) {
  Bench bench;
  Product product(*bench.device, 1, 1, 1, {.precision = Precision::fp16});
  const auto judge = [&](double a, double b, double d) {
    set(product.gemm.a, 0, 0, a);
    set(product.gemm.b, 0, 0, b);
    set(product.gemm.d, 0, 0, d);
    const std::size_t by_checksum = bench.checksum(product).findings.size();
    const std::size_t by_sample = bench.host_sample(product).findings.size();
    EXPECT_LE(by_checksum, by_sample) << a << " * " << b << " -> " << d;  // it may leave infinity undecided
    return by_sample == 0;
  };
  EXPECT_TRUE(judge(300, 300, infinity));
  EXPECT_TRUE(judge(-300, 300, -infinity));
  EXPECT_TRUE(judge(65504, 1, 65504));
  EXPECT_FALSE(judge(300, 300, -infinity));
  EXPECT_FALSE(judge(300, 300, 65504));
  EXPECT_FALSE(judge(300, 300, nan_value));
  EXPECT_FALSE(judge(200, 300, infinity));
  EXPECT_FALSE(judge(200, 200, infinity));
}

TEST(GemmAudit, OverflowInARowIsUndecidedAndTheHostSampleDecidesIt) {
  Bench bench;
  const Product product = bench.product(1, 4, 2, {.precision = Precision::fp16});
  for (std::int64_t p = 0; p < 2; ++p) {
    set(product.gemm.a, 0, p, 300);
    for (std::int64_t j = 0; j < 4; ++j) set(product.gemm.b, j, p, j == 0 ? 200 : 1);
  }
  bench.run(product);
  ASSERT_TRUE(std::isinf(get(product.gemm.d, 0, 0)));
  const GemmAuditReport right = bench.checksum(product);
  EXPECT_THAT(right.findings, testing::IsEmpty());
  EXPECT_EQ(right.undecided, 1u);
  for (std::int64_t j = 1; j < 4; ++j) set(product.gemm.d, 0, j, infinity);
  EXPECT_THAT(bench.checksum(product).findings, testing::IsEmpty());
  const auto findings = bench.host_sample(product).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_TRUE(findings[0].not_finite);
  EXPECT_EQ(findings[0].check, std::string("host sample"));
}

}  // namespace
}  // namespace egt::test
