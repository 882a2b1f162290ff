#include "workload/train/gemm_audit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gemm_audit_fixture.hpp"

namespace egt::test {
namespace {

constexpr std::array all_data{Data::uniform, Data::whole, Data::cancelling, Data::mixed,
                              Data::huge,    Data::tiny,  Data::zero};

TEST(GemmAudit, NeverAlarmsFalsely) {
  Bench bench;
  Engine engine(3);
  constexpr int repetitions = 4;
  std::uint64_t audits = 0, comparisons = 0, undecided = 0;
  double largest_share = 0;
  const auto size = [&] { return std::uniform_int_distribution<std::int64_t>(1, 40)(engine); };
  for (int i = 0; audits < 10'000; ++i)
    for (const Precision precision : precisions)
      for (const Data data : all_data) {
        const bool sixteen_bits = size_of(storage_type(precision)) == 2;
        const Product product = bench.product(size(), size(), size(),
                                              {.precision = precision,
                                               .a_transposed = (i & 1) != 0,
                                               .b_transposed = (i & 2) != 0,
                                               .wide = sixteen_bits && (i & 4) != 0,
                                               .padding = i % 3},
                                              data, engine());
        for (int repetition = 0; repetition < repetitions; ++repetition) {
          ASSERT_TRUE(bench.audit->enqueue_checksum(product.gemm, "checksum", *bench.stream).ok());
          ASSERT_TRUE(bench.audit->enqueue_host_sample(product.gemm, "sample", *bench.stream).ok());
        }
        const GemmAuditReport report = bench.collect();
        for (const GemmFinding& finding : report.findings)
          ADD_FAILURE() << describe(product, data) << ": " << finding.text();
        ASSERT_TRUE(report.findings.empty());
        audits += report.products;
        comparisons += report.comparisons;
        largest_share = std::max(largest_share, report.largest_share);
        if (data != Data::huge) undecided += report.undecided;
      }
  EXPECT_GT(comparisons, 150'000u);
  EXPECT_EQ(undecided, 0u);
  EXPECT_GT(largest_share, 0.1);  // the bounds are no wider than it takes
  EXPECT_LE(largest_share, 1);
}

TEST(GemmAudit, LargeAndOddShapesDoNotAlarm) {
  Bench bench;
  constexpr std::int64_t shapes[][3] = {{1, 1, 1},       {1, 512, 3}, {512, 1, 7},
                                        {300, 257, 129}, {7, 5, 512}, {256, 512, 512}};
  for (const Precision precision : precisions)
    for (const auto& [m, n, k] : shapes)
      for (const bool transposed : {false, true})
        for (const Data data : {Data::uniform, Data::cancelling}) {
          const Product product = bench.product(
              m, n, k, {.precision = precision, .a_transposed = transposed, .b_transposed = !transposed},
              data);
          EXPECT_THAT(bench.checksum(product).findings, testing::IsEmpty()) << describe(product, data);
          EXPECT_THAT(bench.host_sample(product).findings, testing::IsEmpty()) << describe(product, data);
        }
}

// One group: the bound is that of a whole row, which the test computes by itself.
TEST(GemmAudit, EveryChangeAboveTwiceTheBoundIsFound) {
  Bench bench(1);
  Engine engine(5);
  for (const Precision precision : precisions) {
    const Product product = bench.product(33, 49, 20, {.precision = precision, .padding = 1});
    const MatrixView& d = product.gemm.d;
    const auto words_per_row = static_cast<std::uint64_t>(d.leading) * size_of(d.type) / 4;
    const WordsView words{static_cast<std::uint32_t*>(d.data),
                          words_per_row * static_cast<std::uint64_t>(d.rows)};
    int above = 0, below = 0;
    for (int i = 0; i < 400; ++i) {
      const auto row = static_cast<std::int64_t>(engine() % 33);
      const std::uint64_t word = engine() % (words_per_row - 2);
      const Flip flip{.first = static_cast<std::uint64_t>(row) * words_per_row + word,
                      .mask = 1u << (engine() % 32)};
      std::vector<double> before;
      for (std::int64_t j = 0; j < d.columns; ++j) before.push_back(get(d, row, j));
      const double bound = product.row_bound(row);
      ASSERT_TRUE(bench.device->flip(words, flip, *bench.stream).ok());
      bench.finish();
      double change = 0;
      for (std::int64_t j = 0; j < d.columns; ++j)
        if (const double now = get(d, row, j); now != before[static_cast<std::size_t>(j)])
          change = std::fabs(now - before[static_cast<std::size_t>(j)]);
      const auto findings = bench.checksum(product).findings;
      if (!(change <= 2.01 * bound)) {
        ++above;
        ASSERT_EQ(findings.size(), 1u) << to_string(precision) << " changed by " << change;
        EXPECT_EQ(findings[0].row, row);
        EXPECT_EQ(findings[0].rows_wrong, 1u);
      } else {
        ++below;
        EXPECT_TRUE(change > 0 || findings.empty());
      }
      ASSERT_TRUE(bench.device->flip(words, flip, *bench.stream).ok());
      bench.finish();
    }
    EXPECT_GT(above, 20) << to_string(precision);
    EXPECT_GT(below, 20) << to_string(precision);
    EXPECT_THAT(bench.checksum(product).findings, testing::IsEmpty());
  }
}

TEST(GemmAudit, NamesTheProductRowAndColumns) {
  Bench bench(4);
  const Product product = bench.product(20, 400, 30), right = bench.product(20, 400, 30);
  set(product.gemm.d, 3, 150, get(product.gemm.d, 3, 150) + 1);
  set(product.gemm.d, 11, 399, get(product.gemm.d, 11, 399) + 1);
  ASSERT_TRUE(bench.audit->enqueue_checksum(right.gemm, "layer 1", *bench.stream).ok());
  ASSERT_TRUE(bench.audit->enqueue_checksum(product.gemm, "layer 2", *bench.stream).ok());
  const GemmAuditReport report = bench.collect();
  EXPECT_EQ(report.products, 2u);
  EXPECT_EQ(report.comparisons, 2u * 20 * 4);
  ASSERT_EQ(report.findings.size(), 1u);
  const GemmFinding& finding = report.findings[0];
  EXPECT_EQ(finding.name, "layer 2");
  EXPECT_EQ(finding.row, 3);
  EXPECT_EQ(finding.first_column, 96);
  EXPECT_EQ(finding.columns, 96);
  EXPECT_EQ(finding.rows_wrong, 2u);
  EXPECT_THAT(std::fabs(finding.actual - finding.expected),
              testing::AllOf(testing::Gt(0.999), testing::Lt(1.251)));
  EXPECT_LT(finding.bound, 0.1);
  EXPECT_THAT(finding.text(), testing::AllOf(testing::HasSubstr("layer 2: checksum of row 3, columns 96 to "
                                                                "191 is "),
                                             testing::HasSubstr("(2 rows wrong)")));
}

TEST(GemmAudit, AWrongOperandIsFoundToo) {
  Bench bench;
  for (const bool in_a : {true, false}) {
    const Product product = bench.product(20, 30, 40);
    const MatrixView& operand = in_a ? product.gemm.a : product.gemm.b;
    set(operand, 7, 9, get(operand, 7, 9) + 4);
    const auto findings = bench.checksum(product).findings;
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].row, in_a ? 7 : 0);
    EXPECT_EQ(findings[0].rows_wrong, in_a ? 1u : 20u);
  }
}

TEST(GemmAudit, EqualErrorsOfSeveralElementsDoNotCancelAndNoTwoAuditsAreAlike) {
  Bench bench;
  const Product product = bench.product(4, 30, 10);
  for (const std::int64_t column : {5, 6, 7, 8})
    set(product.gemm.d, 1, column, get(product.gemm.d, 1, column) + (column % 2 == 0 ? 1 : -1));
  std::set<double> sums;
  int found = 0;
  for (int i = 0; i < 100; ++i)
    for (const GemmFinding& finding : bench.checksum(product).findings) {
      ++found;
      sums.insert(finding.expected);
    }
  EXPECT_GT(found, 95);
  EXPECT_GT(sums.size(), 90u);
}

TEST(GemmAudit, HostSamplesReachEveryElementInTime) {
  Bench bench;
  for (const bool transposed : {false, true}) {
    const Product product =
        bench.product(12, 10, 33, {.a_transposed = transposed, .b_transposed = !transposed});
    set(product.gemm.d, 11, 9, get(product.gemm.d, 11, 9) + 0.01);
    int found = 0;
    for (int i = 0; i < 100; ++i)
      for (const GemmFinding& finding : bench.host_sample(product).findings) {
        ++found;
        EXPECT_EQ(finding.row, 11);
        EXPECT_EQ(finding.first_column, 9);
        EXPECT_EQ(finding.columns, 1);
        EXPECT_THAT(finding.text(), testing::HasSubstr("host sample of element 11, 9 is "));
      }
    EXPECT_GT(found, 3);  // about 10 expected
  }
}

/// Computes every product wrongly, and always alike.
class WrongProducts : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Status gemm(const Gemm& gemm, Stream& stream) override {
    EGT_TRY(ForwardingDevice::gemm(gemm, stream));
    return flip({static_cast<std::uint32_t*>(gemm.d.data), 1}, {.mask = 1u << 30}, stream);
  }
};

/// Its products of matrix and vector, too, are wrong: all zero.
class BlindDevice : public WrongProducts {
 public:
  using WrongProducts::WrongProducts;
  Status multiply_vector(MatrixView m, bool transposed, bool, const double*, double* y,
                         Stream& stream) override {
    const std::int64_t count = transposed ? m.columns : m.rows;
    return set_zero(y, static_cast<std::size_t>(count) * sizeof(double), stream);
  }
};

TEST(GemmAudit, ADeviceThatIsAlwaysWrongIsFound) {
  Bench bench(8, std::make_unique<WrongProducts>(small_host_device()));
  const Product product = bench.product(9, 8, 7);
  const auto findings = bench.checksum(product).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].row, 0);
}

TEST(GemmAudit, TheHostSampleDoesNotRelyOnTheDevicesArithmetic) {
  Bench bench(8, std::make_unique<BlindDevice>(small_host_device()));
  const Product product = bench.product(9, 8, 7);
  EXPECT_THAT(bench.checksum(product).findings, testing::IsEmpty());
  EXPECT_THAT(bench.host_sample(product).findings, testing::SizeIs(1));
}

/// Quantized, with scales that are not 1, into either type.
TEST(GemmAudit, OfNumbersOf8BitsRightProductsDoNotAlarmAndAWrongScaleDoes) {
  Bench bench;
  Product wide = bench.product(64, 96, 256, {.precision = Precision::fp32}, Data::uniform, 3);
  for (std::int64_t c = 0; c < 256; ++c) set(wide.gemm.a, 5, c, 100 * get(wide.gemm.a, 5, c));
  const Buffer copies = std::move(bench.device->allocate(160 * 256).value());
  const Buffer scales = std::move(bench.device->allocate(2 * Gemm::scale_alignment).value());
  float* const second_scale = scales.as<float>() + Gemm::scale_alignment / sizeof(float);
  Gemm gemm = {.precision = Precision::fp8,
               .a = {copies.data(), ElementType::f8_e5m2, 64, 256},
               .b = {copies.as<char>() + 64 * 256, ElementType::f8, 96, 256},
               .d = wide.gemm.d,
               .b_transposed = true,
               .a_scale = scales.as<float>(),
               .b_scale = second_scale};
  const auto quantize = [&](const MatrixView& x, const MatrixView& copy, float* scale) {
    EXPECT_TRUE(
        bench.device->quantize({.x = x, .copy = copy, .transposed = {}, .scale = scale}, *bench.stream).ok());
  };
  quantize(wide.gemm.a, gemm.a, scales.as<float>());
  quantize(wide.gemm.b, gemm.b, second_scale);
  const auto findings = [&] {
    EXPECT_TRUE(bench.audit->enqueue_checksum(gemm, "checksum", *bench.stream).ok());
    EXPECT_TRUE(bench.audit->enqueue_host_sample(gemm, "sample", *bench.stream).ok());
    return bench.collect().findings.size();
  };
  for (const bool wide_result : {true, false}) {
    if (!wide_result) gemm.d.type = ElementType::bf16;
    EXPECT_TRUE(bench.device->gemm(gemm, *bench.stream).ok());
    bench.finish();
    EXPECT_EQ(findings(), 0u);
    float& scale = *scales.as<float>();
    scale *= 2;
    EXPECT_EQ(findings(), 2u);
    scale /= 2;
  }
  set(gemm.d, 20, 30, get(gemm.d, 20, 30) + 200);
  EXPECT_TRUE(bench.audit->enqueue_checksum(gemm, "checksum", *bench.stream).ok());
  const GemmAuditReport report = bench.collect();
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings.front().row, 20);
}

TEST(GemmAudit, RefusesWhatDoesNotFit) {
  Bench bench;
  const auto code = [&](const Gemm& gemm) {
    return bench.audit->enqueue_checksum(gemm, "product", *bench.stream).code();
  };
  const Product product = bench.product(4, 5, 6);
  Gemm scaled = product.gemm, added = product.gemm;
  scaled.alpha = 2;
  added.beta = 1;
  EXPECT_EQ(code(scaled), StatusCode::invalid_argument);
  EXPECT_EQ(code(added), StatusCode::invalid_argument);
  EXPECT_EQ(code(bench.product(513, 1, 1).gemm), StatusCode::invalid_argument);
  EXPECT_EQ(code(bench.product(2, 2, 0).gemm), StatusCode::invalid_argument);
  while (bench.audit->free_slots() > 0) ASSERT_EQ(code(product.gemm), StatusCode::ok);
  EXPECT_EQ(code(product.gemm), StatusCode::invalid_argument);
  EXPECT_EQ(bench.collect().products, 16u);
  ASSERT_EQ(code(product.gemm), StatusCode::ok);
  const auto other = bench.device->create_stream(StreamPriority::normal);
  EXPECT_EQ(bench.audit->enqueue_host_sample(product.gemm, "product", *other.value()).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(bench.collect().products, 1u);
  EXPECT_EQ(bench.collect().products, 0u);
  for (const GemmAuditConfig& bad : {GemmAuditConfig{}, GemmAuditConfig{.largest_dimension = 8, .slots = 0},
                                     GemmAuditConfig{.largest_dimension = 8, .column_groups = 0},
                                     GemmAuditConfig{.largest_dimension = std::int64_t{1} << 40}})
    EXPECT_EQ(GemmAudit::create(*bench.device, bad).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace egt::test
