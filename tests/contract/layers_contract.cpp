#include <cmath>
#include <limits>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Engine;
using reference::Matrix;

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{1, 1}, {1, 17}, {3, 5}, {31, 64}, {33, 33}, {100, 300}, {257, 8}};

Array uniform(ElementType type, std::int64_t count, std::uint64_t seed) {
  Engine engine(seed);
  Array array(type, count);
  reference::fill_uniform(array, engine);
  return array;
}

Matrix uniform(ElementType type, Shape shape, std::int64_t padding, std::uint64_t seed) {
  Engine engine(seed);
  Matrix matrix(type, shape.rows, shape.columns, shape.columns + padding);
  reference::fill_uniform(matrix, engine);
  return matrix;
}

/// z + bias in the arithmetic of the type: fp32 or fp64.
double biased(const Matrix& z, const Array& bias, std::int64_t r, std::int64_t c) {
  return reference::rounded(z.type() == ElementType::f64 ? ElementType::f64 : ElementType::f32,
                            z.get(r, c) + bias.get(c));
}

/// Tolerance of an fp32 sum of `magnitude` stored as `type`.
double sum_tolerance(ElementType type, double sum, double magnitude) {
  return 2e-6 * magnitude + 1.01 * reference::rounding_error(type) * std::fabs(sum) + 1e-30;
}

void expect_column_sums(const Array& actual, const Matrix& of) {
  for (std::int64_t c = 0; c < of.columns(); ++c) {
    double sum = 0, magnitude = 0;
    for (std::int64_t r = 0; r < of.rows(); ++r) {
      sum += of.get(r, c);
      magnitude += std::fabs(of.get(r, c));
    }
    EXPECT_TRUE(std::fabs(actual.get(c) - sum) <= sum_tolerance(actual.type(), sum, magnitude))
        << "column " << c << " of " << of.rows() << " x " << of.columns() << ": " << actual.get(c) << ", not "
        << sum;
  }
}

}  // namespace

TEST_P(DeviceContract, ActivateWithoutExtremeComputeIsReluExactly) {
  for (const ElementType type : all_types)
    for (const Shape& shape : shapes) {
      const Matrix z = uniform(type, shape, 5, 1);
      const Array bias = uniform(ElementType::f32, shape.columns, 2);
      const DeviceMatrix h = upload(z);
      const DeviceArray bias_on_device = upload(bias);
      EXPECT_OK(device().activate(h.view, bias_on_device.floats(), {}, stream()));
      Matrix result = z;
      download(h, result);
      EXPECT_TRUE(result.padding_is_intact());
      for (std::int64_t r = 0; r < shape.rows; ++r)
        for (std::int64_t c = 0; c < shape.columns; ++c)
          ASSERT_EQ(result.get(r, c), reference::rounded(type, std::max(0.0, biased(z, bias, r, c))))
              << to_string(type) << " " << r << ", " << c;
    }
}

TEST_P(DeviceContract, ActivateAddsTheExtremeTermAndKeepsTheSign) {
  constexpr int iterations = 7;
  for (const ElementType type : all_types) {
    const Matrix z = uniform(type, {33, 65}, 3, 3);
    const Array bias = uniform(ElementType::f32, 65, 4);
    const DeviceMatrix h = upload(z);
    const DeviceArray bias_on_device = upload(bias);
    EXPECT_OK(device().activate(h.view, bias_on_device.floats(), {.iterations = iterations}, stream()));
    Matrix result = z;
    download(h, result);
    EXPECT_TRUE(result.padding_is_intact());
    for (std::int64_t r = 0; r < 33; ++r)
      for (std::int64_t c = 0; c < 65; ++c) {
        const double z0 = biased(z, bias, r, c);
        const float phase = math::extreme_phase(static_cast<std::uint64_t>(r * 65 + c));
        const double term = math::extreme(static_cast<float>(std::fabs(z0)), phase, iterations).mean / 1024.0;
        const double expected = z0 > 0 ? z0 + term : -term, actual = result.get(r, c);
        // The transcendental functions may differ by some ulp between libraries.
        EXPECT_TRUE(std::fabs(actual - expected) <=
                    1e-5 * term + 1.01 * reference::rounding_error(std::max(type, ElementType::f32)) *
                                      std::fabs(expected))
            << to_string(type) << ": " << actual << ", not " << expected;
        EXPECT_EQ(actual > 0, z0 > 0);
      }
  }
}

TEST_P(DeviceContract, ActivationGradientMasksAndSumsColumns) {
  for (const ElementType type : all_types)
    for (const ElementType bias_type : {ElementType::f32, ElementType::bf16})
      for (const Shape& shape : shapes) {
        const Matrix gradient = uniform(type, shape, 2, 5), h = uniform(type, shape, 7, 6);
        const DeviceMatrix g = upload(gradient), h_on_device = upload(h);
        const DeviceArray bias = upload(Array(bias_type, shape.columns));
        EXPECT_OK(device().activation_gradient(g.view, h_on_device.view, bias.view(), stream()));
        Matrix result = gradient;
        download(g, result);
        EXPECT_TRUE(result.padding_is_intact());
        for (std::int64_t r = 0; r < shape.rows; ++r)
          for (std::int64_t c = 0; c < shape.columns; ++c)
            ASSERT_EQ(result.get(r, c), h.get(r, c) > 0 ? gradient.get(r, c) : 0.0);
        expect_column_sums(download(bias), result);
      }
}

TEST_P(DeviceContract, LossGradientIsTheFormula) {
  constexpr std::uint64_t seed = 99;
  constexpr float scale = 0.125f;
  for (const ElementType type : all_types)
    for (const ElementType bias_type : {ElementType::f32, ElementType::bf16})
      for (const Shape& shape : shapes) {
        const std::int64_t inputs = shape.columns + 3;
        const Matrix z = uniform(type, shape, 1, 7), x = uniform(type, {shape.rows, inputs}, 4, 8);
        const Array bias = uniform(ElementType::f32, shape.columns, 9);
        const DeviceMatrix z_on_device = upload(z), x_on_device = upload(x);
        const DeviceArray bias_on_device = upload(bias);
        const DeviceArray bias_gradient = upload(Array(bias_type, shape.columns));
        const DeviceArray loss = upload(Array(ElementType::f32, 1));
        EXPECT_OK(device().loss_gradient({z_on_device.view, x_on_device.view, bias_on_device.floats(), seed,
                                          scale, bias_gradient.view(), loss.floats()},
                                         stream()));
        Matrix result = z;
        download(z_on_device, result);
        EXPECT_TRUE(result.padding_is_intact());
        double expected_loss = 0;
        for (std::int64_t r = 0; r < shape.rows; ++r)
          for (std::int64_t j = 0; j < shape.columns; ++j) {
            const auto output = static_cast<std::uint32_t>(j);
            double y = math::target_offset(seed, output);
            for (int tap = 0; tap < math::target_taps; ++tap) {
              const auto [input, weight] =
                  math::target_tap(seed, output, tap, static_cast<std::uint32_t>(inputs));
              y += weight * x.get(r, input);
            }
            const double difference = z.get(r, j) + bias.get(j) - y;
            expected_loss += difference * difference;
            const double expected = difference * scale;
            ASSERT_TRUE(std::fabs(result.get(r, j) - expected) <=
                        2e-6 + 1.01 * reference::rounding_error(type) * std::fabs(expected))
                << result.get(r, j) << ", not " << expected;
          }
        EXPECT_NEAR(download(loss).get(0), expected_loss, 1e-5 * expected_loss);
        expect_column_sums(download(bias_gradient), result);
      }
}

TEST_P(DeviceContract, ANanStaysANanThroughEveryLayer) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const ElementType type : all_types) {
    Matrix z = uniform(type, {33, 40}, 0, 10);
    z.set(20, 11, nan);
    const Matrix clean = uniform(type, {33, 40}, 0, 11);
    const DeviceArray bias = upload(uniform(ElementType::f32, 40, 12));
    const DeviceArray sums = upload(Array(ElementType::f32, 40)), loss = upload(Array(ElementType::f32, 1));
    const auto expect_nan_at_its_place = [&](const DeviceMatrix& where, const char* what) {
      Matrix result = z;
      download(where, result);
      for (std::int64_t r = 0; r < 33; ++r)
        for (std::int64_t c = 0; c < 40; ++c)
          EXPECT_EQ(std::isnan(result.get(r, c)), r == 20 && c == 11) << what << " " << to_string(type);
    };
    const auto expect_nan_in_sum = [&](const char* what) {
      const Array result = download(sums);
      for (std::int64_t c = 0; c < 40; ++c) EXPECT_EQ(std::isnan(result.get(c)), c == 11) << what;
    };
    for (const int iterations : {0, 2}) {
      const DeviceMatrix h = upload(z);
      EXPECT_OK(device().activate(h.view, bias.floats(), {.iterations = iterations}, stream()));
      expect_nan_at_its_place(h, "activate");
    }
    const DeviceMatrix gradient = upload(z), h = upload(clean);
    EXPECT_OK(device().activation_gradient(gradient.view, h.view, sums.view(), stream()));
    expect_nan_at_its_place(gradient, "activation_gradient, gradient");
    expect_nan_in_sum("activation_gradient, gradient");
    const DeviceMatrix gradient2 = upload(clean), h2 = upload(z);
    EXPECT_OK(device().activation_gradient(gradient2.view, h2.view, sums.view(), stream()));
    expect_nan_at_its_place(gradient2, "activation_gradient, h");
    const DeviceMatrix z2 = upload(z), x = upload(clean);
    EXPECT_OK(device().loss_gradient({z2.view, x.view, bias.floats(), 1, 1.0f, sums.view(), loss.floats()},
                                     stream()));
    expect_nan_at_its_place(z2, "loss_gradient");
    expect_nan_in_sum("loss_gradient");
    EXPECT_TRUE(std::isnan(download(loss).get(0)));
  }
}

TEST_P(DeviceContract, LayersAreRepeatableBitForBit) {
  for (const ElementType type : all_types) {
    const Matrix z = uniform(type, {517, 300}, 0, 13), x = uniform(type, {517, 90}, 0, 14);
    const DeviceArray bias = upload(uniform(ElementType::f32, 300, 15));
    std::vector<Array> runs[2];
    for (std::vector<Array>& run : runs) {
      const DeviceMatrix h = upload(z), gradient = upload(z), inputs = upload(x);
      const DeviceArray sums = upload(Array(ElementType::f32, 300)),
                        loss = upload(Array(ElementType::f32, 1));
      EXPECT_OK(device().activate(h.view, bias.floats(), {.iterations = 3}, stream()));
      EXPECT_OK(device().loss_gradient(
          {gradient.view, inputs.view, bias.floats(), 1, 1.0f, sums.view(), loss.floats()}, stream()));
      run.push_back(download(sums));
      run.push_back(download(loss));
      EXPECT_OK(device().activation_gradient(gradient.view, h.view, sums.view(), stream()));
      run.push_back(download(sums));
      Matrix result = z;
      download(h, result);
      run.push_back(result.array);
      download(gradient, result);
      run.push_back(result.array);
    }
    EXPECT_TRUE(runs[0] == runs[1]) << to_string(type);
  }
}

TEST_P(DeviceContract, LayersOfNothingDoNothing) {
  const DeviceArray floats = upload(uniform(ElementType::f32, 8, 16));
  EXPECT_OK(device().activate({nullptr, ElementType::f32, 0, 8}, floats.floats(), {}, stream()));
  EXPECT_OK(device().activate({nullptr, ElementType::f32, 4, 0}, nullptr, {}, stream()));
  // Without rows, every column sum is 0.
  EXPECT_OK(device().activation_gradient({nullptr, ElementType::f32, 0, 8}, {nullptr, ElementType::f32, 0, 8},
                                         floats.view(), stream()));
  const Array sums = download(floats);
  for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(sums.get(c), 0.0);
}

TEST_P(DeviceContract, LayersRefuseWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  float* const floats = memory.as<float>();
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, ElementType type = ElementType::f32) {
    return MatrixView(memory.data(), type, rows, columns);
  };
  const VectorView sums{floats, ElementType::f32, 5};
  EXPECT_FAILS(invalid_argument, device().activate(matrix(4, 5), floats, {.iterations = -1}, stream()));
  EXPECT_FAILS(invalid_argument, device().activation_gradient(matrix(4, 5), matrix(5, 4), sums, stream()));
  EXPECT_FAILS(invalid_argument,
               device().activation_gradient(matrix(4, 5), matrix(4, 5, ElementType::bf16), sums, stream()));
  EXPECT_FAILS(invalid_argument, device().activation_gradient(matrix(4, 6), matrix(4, 6), sums, stream()));
  EXPECT_FAILS(invalid_argument, device().activation_gradient(matrix(4, 5), matrix(4, 5),
                                                              {floats, ElementType::f16, 5}, stream()));
  EXPECT_FAILS(invalid_argument,
               device().loss_gradient({matrix(4, 5), matrix(3, 5), floats, 1, 1, sums, floats}, stream()));
  EXPECT_FAILS(invalid_argument,
               device().loss_gradient({matrix(4, 5), matrix(4, 0), floats, 1, 1, sums, floats}, stream()));
  EXPECT_FAILS(invalid_argument,
               device().loss_gradient(
                   {matrix(4, 5), matrix(4, 5, ElementType::bf16), floats, 1, 1, sums, floats}, stream()));
  EXPECT_FAILS(invalid_argument,
               device().loss_gradient({matrix(4, 6), matrix(4, 6), floats, 1, 1, sums, floats}, stream()));
  finish();
}

TEST_P(DeviceContract, LayersRefuseMissingMemoryAndRowsThatOverlap) {
  const Buffer memory = allocate(4096);
  float* const floats = memory.as<float>();
  const MatrixView good(memory.data(), ElementType::f32, 4, 5);
  const VectorView sums{floats, ElementType::f32, 5}, no_sums{nullptr, ElementType::f32, 5};
  for (const MatrixView& bad :
       {MatrixView(nullptr, ElementType::f32, 4, 5), MatrixView(memory.data(), ElementType::f32, 4, 5, 3),
        MatrixView(memory.data(), ElementType::f32, -4, 5)}) {
    EXPECT_FAILS(invalid_argument, device().activate(bad, floats, {}, stream()));
    EXPECT_FAILS(invalid_argument, device().activation_gradient(bad, good, sums, stream()));
    EXPECT_FAILS(invalid_argument, device().activation_gradient(good, bad, sums, stream()));
    EXPECT_FAILS(invalid_argument, device().loss_gradient({bad, good, floats, 1, 1, sums, floats}, stream()));
    EXPECT_FAILS(invalid_argument, device().loss_gradient({good, bad, floats, 1, 1, sums, floats}, stream()));
  }
  EXPECT_FAILS(invalid_argument, device().activate(good, nullptr, {}, stream()));
  EXPECT_FAILS(invalid_argument, device().activation_gradient(good, good, no_sums, stream()));
  EXPECT_FAILS(invalid_argument, device().loss_gradient({good, good, nullptr, 1, 1, sums, floats}, stream()));
  EXPECT_FAILS(invalid_argument,
               device().loss_gradient({good, good, floats, 1, 1, no_sums, floats}, stream()));
  EXPECT_FAILS(invalid_argument, device().loss_gradient({good, good, floats, 1, 1, sums, nullptr}, stream()));
  finish();
}

}  // namespace egt::contract
