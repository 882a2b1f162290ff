#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/contract/device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Engine;
using reference::Matrix;

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{1, 1},   {1, 17},   {3, 5},    {33, 33},    {100, 304},
                            {257, 8}, {5, 5000}, {5000, 5}, {300, 1032}, {4, 64}};
constexpr double untouched = 12345.0;

Matrix uniform(ElementType type, Shape shape, std::int64_t padding) {
  Engine engine(static_cast<std::uint64_t>(shape.rows * 10007 + shape.columns));
  Matrix matrix(type, shape.rows, shape.columns, shape.columns + padding);
  reference::fill_uniform(matrix, engine);
  return matrix;
}

Array uniform(std::int64_t count) {
  Engine engine(5);
  Array array(ElementType::f64, count);
  reference::fill_uniform(array, engine);
  return array;
}

/// op(m): its rows and columns are sums and terms.
struct Operand {
  const Matrix& m;
  bool transposed;

  std::int64_t sums() const { return transposed ? m.columns() : m.rows(); }
  std::int64_t terms() const { return transposed ? m.rows() : m.columns(); }
  double at(std::int64_t sum, std::int64_t term) const {
    return transposed ? m.get(term, sum) : m.get(sum, term);
  }
  std::string name() const {
    return fmt::format("{} {} x {}, leading {}{}", to_string(m.type()), m.rows(), m.columns(), m.leading(),
                       transposed ? ", transposed" : "");
  }
};

std::vector<Operand> forms_of(const Matrix& m) {
  return {{m, false}, {m, true}};
}

void expect_is_product(const Array& y, const Operand& operand, const Array& x) {
  for (std::int64_t i = 0; i < operand.sums(); ++i) {
    double sum = 0, magnitude = 0;
    for (std::int64_t k = 0; k < operand.terms(); ++k) {
      const double term = operand.at(i, k) * x.get(k);
      sum += term;
      magnitude += std::fabs(term);
    }
    const double tolerance = 2.3e-16 * static_cast<double>(operand.terms() + 1) * magnitude;
    ASSERT_TRUE(std::fabs(y.get(i) - sum) <= tolerance)
        << operand.name() << ", sum " << i << ": " << y.get(i) << ", not " << sum;
  }
}

}  // namespace

TEST_P(DeviceContract, MultiplyVectorIsTheProductInFp64) {
  for (const ElementType type : all_types)
    for (const Shape& shape : shapes)
      for (const std::int64_t padding : {0, 3, 8}) {
        const Matrix matrix = uniform(type, shape, padding);
        const DeviceMatrix m = upload(matrix);
        for (const Operand& operand : forms_of(matrix)) {
          const Array x = uniform(operand.terms());
          const DeviceArray x_on_device = upload(x);
          Array result(ElementType::f64, operand.sums() + 1);
          result.set(operand.sums(), untouched);
          const DeviceArray y = upload(result);
          EXPECT_OK(device().multiply_vector(m.view, operand.transposed, x_on_device.buffer.as<double>(),
                                             y.buffer.as<double>(), stream()));
          download(y, result);
          expect_is_product(result, operand, x);
          EXPECT_EQ(result.get(operand.sums()), untouched) << operand.name();
        }
      }
}

TEST_P(DeviceContract, MultiplyVectorTakesAnyPlaceAndIsRepeatableBitForBit) {
  for (const ElementType type : all_types) {
    const Matrix matrix = uniform(type, {1100, 1100}, 4);
    const DeviceMatrix m = upload(matrix);
    for (const Operand& operand : forms_of(matrix)) {
      const Array x = uniform(1101);
      const DeviceArray x_on_device = upload(x);
      const DeviceArray y[] = {upload(Array(ElementType::f64, 1100)), upload(Array(ElementType::f64, 1100))};
      for (const DeviceArray& run : y)
        EXPECT_OK(device().multiply_vector(m.view, operand.transposed, x_on_device.buffer.as<double>() + 1,
                                           run.buffer.as<double>(), stream()));
      Array shifted(ElementType::f64, 1100);
      for (std::int64_t i = 0; i < 1100; ++i) shifted.set(i, x.get(i + 1));
      const Array result = download(y[0]);
      expect_is_product(result, operand, shifted);
      EXPECT_TRUE(result == download(y[1])) << operand.name();
    }
  }
}

TEST_P(DeviceContract, MultiplyVectorLosesNothingThatIsNotFinite) {
  for (const double lost :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    for (const ElementType type : all_types)
      for (const Shape& shape : {Shape{40, 48}, Shape{41, 47}}) {
        Matrix matrix = uniform(type, shape, 0);
        matrix.set(22, 31, lost);
        const DeviceMatrix m = upload(matrix);
        for (const Operand& operand : forms_of(matrix)) {
          const DeviceArray x = upload(uniform(operand.terms()));
          const DeviceArray y = upload(Array(ElementType::f64, operand.sums()));
          EXPECT_OK(device().multiply_vector(m.view, operand.transposed, x.buffer.as<double>(),
                                             y.buffer.as<double>(), stream()));
          const Array result = download(y);
          for (std::int64_t i = 0; i < operand.sums(); ++i)
            EXPECT_EQ(std::isfinite(result.get(i)), i != (operand.transposed ? 31 : 22)) << operand.name();
        }
      }
}

TEST_P(DeviceContract, MultiplyVectorWithoutTermsGivesZeros) {
  const Array ones = [] {
    Array array(ElementType::f64, 4);
    for (std::int64_t i = 0; i < 4; ++i) array.set(i, 1.0);
    return array;
  }();
  for (const bool transposed : {false, true}) {
    const MatrixView m(nullptr, ElementType::bf16, transposed ? 0 : 4, transposed ? 4 : 0);
    const DeviceArray y = upload(ones);
    EXPECT_OK(device().multiply_vector(m, transposed, nullptr, y.buffer.as<double>(), stream()));
    const Array result = download(y);
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(result.get(i), 0.0);
    EXPECT_FAILS(invalid_argument, device().multiply_vector(m, transposed, nullptr, nullptr, stream()));
    EXPECT_OK(device().multiply_vector(m, !transposed, nullptr, nullptr, stream()));  // no sums
  }
  finish();
}

TEST_P(DeviceContract, MultiplyVectorRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  auto* const vector = memory.as<double>();
  const MatrixView good(memory.data(), ElementType::f32, 4, 4);
  for (const bool transposed : {false, true}) {
    for (const MatrixView& bad :
         {MatrixView(nullptr, ElementType::f32, 4, 4), MatrixView(memory.data(), ElementType::f32, 4, 4, 3),
          MatrixView(memory.data(), ElementType::f32, -4, 4)})
      EXPECT_FAILS(invalid_argument, device().multiply_vector(bad, transposed, vector, vector, stream()));
    EXPECT_FAILS(invalid_argument, device().multiply_vector(good, transposed, nullptr, vector, stream()));
    EXPECT_FAILS(invalid_argument, device().multiply_vector(good, transposed, vector, nullptr, stream()));
  }
  finish();
}

}  // namespace egt::contract
