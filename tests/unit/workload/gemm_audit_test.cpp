#include "workload/train/gemm_audit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "egt/core/math/half.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

constexpr double seconds = 60;
constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr std::array precisions{Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                Precision::bf16};

using Engine = std::mt19937_64;

double uniform(Engine& engine, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(engine);
}

template <typename F>
auto with_type(ElementType type, const F& f) {
  switch (type) {
    case ElementType::f64:
      return f(double{});
    case ElementType::f16:
      return f(Half{});
    case ElementType::bf16:
      return f(Bfloat16{});
    default:
      return f(float{});
  }
}

/// Element (r, c) of a matrix of the host device.
double get(const MatrixView& m, std::int64_t r, std::int64_t c) {
  return with_type(m.type, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(Element<T>::load(static_cast<const T*>(m.data)[r * m.leading + c]));
  });
}

void set(const MatrixView& m, std::int64_t r, std::int64_t c, double value) {
  with_type(m.type, [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(m.data)[r * m.leading + c] = convert_element<T>(value);
  });
}

struct ProductOptions {
  Precision precision = Precision::fp32;
  bool a_transposed = false, b_transposed = true;
  bool wide = false;         ///< 16 bits into fp32
  std::int64_t padding = 0;  ///< elements between rows
};

/// A product with operands in memory of a host device.
struct Product {
  std::array<Buffer, 3> buffers;
  Gemm gemm;

  Product(Device& device, std::int64_t m, std::int64_t n, std::int64_t k, const ProductOptions& o) {
    const ElementType type = storage_type(o.precision);
    gemm.precision = o.precision;
    gemm.a_transposed = o.a_transposed;
    gemm.b_transposed = o.b_transposed;
    gemm.a = matrix(device, 0, type, o.a_transposed ? k : m, o.a_transposed ? m : k, o.padding);
    gemm.b = matrix(device, 1, type, o.b_transposed ? n : k, o.b_transposed ? k : n, 2 * o.padding);
    gemm.d = matrix(device, 2, o.wide ? ElementType::f32 : type, m, n, 3 * o.padding);
  }

  MatrixView matrix(Device& device, std::size_t index, ElementType type, std::int64_t rows,
                    std::int64_t columns, std::int64_t padding) {
    const std::int64_t leading = columns + padding;
    auto buffer = device.allocate(static_cast<std::size_t>(rows * leading) * size_of(type));
    EXPECT_TRUE(buffer.ok());
    buffers[index] = std::move(buffer.value());
    return {buffers[index].data(), type, rows, columns, leading};
  }

  double a_at(std::int64_t i, std::int64_t p) const {
    return gemm.a_transposed ? get(gemm.a, p, i) : get(gemm.a, i, p);
  }
  double b_at(std::int64_t p, std::int64_t j) const {
    return gemm.b_transposed ? get(gemm.b, j, p) : get(gemm.b, p, j);
  }
  /// The largest bound of one whole row of d: that of the header, that of the checksum's own sums in fp64,
  /// and the largest factor.
  double row_bound(std::int64_t i) const {
    const GemmShape shape(gemm);
    const GemmRounding rounding = GemmRounding::of(gemm.precision, gemm.d.type, shape.k);
    double terms = 0, stored = 0;
    for (std::int64_t j = 0; j < shape.n; ++j) {
      stored += std::fabs(get(gemm.d, i, j));
      for (std::int64_t p = 0; p < shape.k; ++p) terms += std::fabs(a_at(i, p) * b_at(p, j));
    }
    const double audit = static_cast<double>(shape.k + shape.n + 2) * 0x1p-53;
    return 1.25 * ((rounding.terms + audit) * terms + (rounding.stored + audit) * stored +
                   static_cast<double>(shape.n) * rounding.quantum);
  }
};

/// The kinds of numbers that products are made of.
enum class Data { uniform, whole, cancelling, mixed, huge, tiny, zero };
constexpr std::array all_data{Data::uniform, Data::whole, Data::cancelling, Data::mixed,
                              Data::huge,    Data::tiny,  Data::zero};

/// The exponents of huge, tiny and mixed numbers.
int exponent(ElementType type, Data data, Engine& engine) {
  const auto between = [&](int low, int high) { return std::uniform_int_distribution(low, high)(engine); };
  const bool f64 = type == ElementType::f64, f16 = type == ElementType::f16;
  if (data == Data::huge) return f64 ? between(480, 1022) : f16 ? between(6, 14) : between(50, 125);
  if (data == Data::tiny) return f64 ? -between(480, 1070) : f16 ? -between(6, 23) : -between(50, 145);
  return f16 ? between(-8, 3) : between(-20, 20);
}

void fill(const MatrixView& m, Data data, Engine& engine) {
  for (std::int64_t r = 0; r < m.rows; ++r)
    for (std::int64_t c = 0; c < m.columns; ++c) {
      double value = uniform(engine, -1, 1);
      if (data == Data::whole) value = std::round(8 * value);
      if (data == Data::zero) value = 0;
      if (data == Data::huge || data == Data::tiny || data == Data::mixed)
        value = std::ldexp(value, exponent(m.type, data, engine));
      set(m, r, c, value);
    }
}

/// Terms 2i and 2i + 1 cancel but for their last bits.
void make_cancelling(const Product& product) {
  const GemmShape shape(product.gemm);
  const MatrixView &a = product.gemm.a, &b = product.gemm.b;
  for (std::int64_t p = 1; p < shape.k; p += 2) {
    for (std::int64_t i = 0; i < shape.m; ++i) {
      const double value = -1.001 * product.a_at(i, p - 1);
      product.gemm.a_transposed ? set(a, p, i, value) : set(a, i, p, value);
    }
    for (std::int64_t j = 0; j < shape.n; ++j) {
      const double value = product.b_at(p - 1, j);
      product.gemm.b_transposed ? set(b, j, p, value) : set(b, p, j, value);
    }
  }
}

/// A device, by default the host's, with a stream and an audit.
struct Bench {
  explicit Bench(int column_groups = 8, std::unique_ptr<Device> a_device = small_host_device())
      : device(std::move(a_device)) {
    stream = std::move(device->create_stream(StreamPriority::normal).value());
    auto made = GemmAudit::create(
        *device, {.largest_dimension = 512, .slots = 16, .seed = 7, .column_groups = column_groups});
    EXPECT_TRUE(made.ok()) << made.status().what();
    audit = std::move(made.value());
  }

  Product product(std::int64_t m, std::int64_t n, std::int64_t k, const ProductOptions& options = {},
                  Data data = Data::uniform, std::uint64_t seed = 1) {
    Engine engine(seed);
    Product made(*device, m, n, k, options);
    fill(made.gemm.a, data, engine);
    fill(made.gemm.b, data, engine);
    if (data == Data::cancelling) make_cancelling(made);
    run(made);
    return made;
  }
  void run(const Product& product) {
    EXPECT_TRUE(device->gemm(product.gemm, *stream).ok());
    finish();
  }
  void finish() { EXPECT_TRUE(device->synchronize(*stream, seconds).ok()); }

  GemmAuditReport collect() {
    auto report = audit->collect(seconds);
    EXPECT_TRUE(report.ok()) << report.status().what();
    return report.ok() ? report.value() : GemmAuditReport{};
  }
  GemmAuditReport checksum(const Product& product) {
    EXPECT_TRUE(audit->enqueue_checksum(product.gemm, "product", *stream).ok());
    return collect();
  }
  GemmAuditReport host_sample(const Product& product) {
    EXPECT_TRUE(audit->enqueue_host_sample(product.gemm, "product", *stream).ok());
    return collect();
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<GemmAudit> audit;
  std::unique_ptr<Stream> stream;  // after the audit: it ends its work first
};

std::string describe(const Product& product, Data data) {
  const GemmShape s(product.gemm);
  return std::string(to_string(product.gemm.precision)) + " " + std::to_string(s.m) + "x" +
         std::to_string(s.n) + "x" + std::to_string(s.k) + " data " + std::to_string(static_cast<int>(data));
}

}  // namespace

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

namespace {

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

}  // namespace

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

}  // namespace egt::test
