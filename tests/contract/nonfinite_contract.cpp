#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>

#include "device_contract.hpp"

/// A NaN or infinity in any operand of training must appear in exactly those result elements that IEEE
/// arithmetic requires, in every precision.
namespace egt::contract {
namespace {

using reference::Array;
using reference::Engine;
using reference::Matrix;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double lost_values[] = {nan, infinity, -infinity};

struct Place {
  std::int64_t row, column;
};
struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{40, 48}, {33, 41}};  // one with vector loads, one without
constexpr Place places[] = {{0, 0}, {21, 13}, {32, 40}};

Matrix uniform(ElementType type, Shape shape, std::uint64_t seed) {
  Engine engine(seed);
  Matrix matrix(type, shape.rows, shape.columns, shape.columns);
  reference::fill_uniform(matrix, engine);
  return matrix;
}

Array uniform(ElementType type, std::int64_t count, std::uint64_t seed) {
  Engine engine(seed);
  Array array(type, count);
  reference::fill_uniform(array, engine);
  return array;
}

/// Expects exactly the elements with `lost(row, column)` to be non-finite.
void expect_lost(const Matrix& result, const std::function<bool(std::int64_t, std::int64_t)>& lost,
                 const std::string& what) {
  int shown = 0;
  for (std::int64_t r = 0; r < result.rows(); ++r)
    for (std::int64_t c = 0; c < result.columns(); ++c)
      if (std::isfinite(result.get(r, c)) == lost(r, c) && shown++ < 3)
        ADD_FAILURE() << what << " at " << r << ", " << c << ": " << result.get(r, c);
}

void expect_lost(const Array& result, const std::function<bool(std::int64_t)>& lost,
                 const std::string& what) {
  for (std::int64_t i = 0; i < result.count(); ++i)
    ASSERT_EQ(!std::isfinite(result.get(i)), lost(i)) << what << " at " << i << ": " << result.get(i);
}

std::string text_of(double lost, ElementType type, const char* where) {
  return fmt::format("{} in {} of {}", lost, where, to_string(type));
}

/// The NaN of `type` whose payload is its last bit only; code that drops low bits turns it into an infinity.
std::uint64_t smallest_nan(ElementType type) {
  return reference::encode(type, infinity) | 1;
}

void set_bits(Array& array, std::int64_t i, std::uint64_t bits) {
  const std::size_t size = size_of(array.type());
  std::memcpy(array.data() + static_cast<std::size_t>(i) * size, &bits, size);
}

/// The NaN with every bit set except the sign, as GPUs produce it; code that rounds it up turns it into zero.
std::uint64_t largest_nan(ElementType type) {
  return (std::uint64_t{1} << (8 * size_of(type) - 1)) - 1;
}

/// Operands of a GEMM of 40 x 24 and 24 x 48; transposed operands are stored transposed.
struct Product {
  static constexpr std::int64_t m = 40, n = 48, k = 24;
  Gemm call;
  Matrix a, b, d;

  Product(Precision precision, ElementType output, bool a_transposed, bool b_transposed)
      : a(uniform(storage_type(precision), a_transposed ? Shape{k, m} : Shape{m, k}, 1)),
        b(uniform(storage_type(precision), b_transposed ? Shape{n, k} : Shape{k, n}, 2)),
        d(uniform(output, {m, n}, 3)) {
    call.precision = precision;
    call.a_transposed = a_transposed;
    call.b_transposed = b_transposed;
  }
  /// Index into the array of `a`.
  std::int64_t in_a(std::int64_t i, std::int64_t p) const {
    return call.a_transposed ? p * m + i : i * k + p;
  }
  std::int64_t in_b(std::int64_t p, std::int64_t j) const {
    return call.b_transposed ? j * k + p : p * n + j;
  }
  std::string text() const {
    return fmt::format("{} into {}{}{}", to_string(call.precision), to_string(d.type()),
                       call.a_transposed ? ", a^T" : "", call.b_transposed ? ", b^T" : "");
  }
};

std::vector<Product> products_of(const std::vector<Precision>& precisions) {
  std::vector<Product> products;
  for (const Precision precision : precisions)
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        const ElementType stored = storage_type(precision);
        products.emplace_back(precision, stored, a_transposed, b_transposed);
        if (size_of(stored) == 2)
          products.emplace_back(precision, ElementType::f32, a_transposed, b_transposed);
      }
  return products;
}

Matrix run(Device& device, Stream& stream, const Product& product, const DeviceMatrix& a,
           const DeviceMatrix& b, const DeviceMatrix& d) {
  Gemm call = product.call;
  call.a = a.view;
  call.b = b.view;
  call.d = d.view;
  EXPECT_OK(device.gemm(call, stream));
  return product.d;
}

}  // namespace

TEST_P(DeviceContract, GemmLosesNothingThatIsNotFinite) {
  const auto result_of = [&](const Product& product) {
    const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
    Matrix result = run(device(), stream(), product, a, b, d);
    download(d, result);
    return result;
  };
  for (const Product& clean : products_of(precisions())) {
    const ElementType stored = clean.a.type(), output = clean.d.type();
    const std::uint64_t sign = std::uint64_t{1} << (8 * size_of(stored) - 1);
    for (const std::uint64_t bits :
         {reference::encode(stored, infinity), reference::encode(stored, -infinity), smallest_nan(stored),
          largest_nan(stored), largest_nan(stored) | sign}) {
      const std::string what = fmt::format("{:x}, {}", bits, clean.text());
      Product in_a = clean, in_b = clean;
      set_bits(in_a.a.array, clean.in_a(21, 13), bits);
      expect_lost(
          result_of(in_a), [](auto i, auto) { return i == 21; }, "a has " + what);
      set_bits(in_b.b.array, clean.in_b(23, 47), bits);
      expect_lost(
          result_of(in_b), [](auto, auto j) { return j == 47; }, "b has " + what);
    }
    for (const std::uint64_t bits :
         {reference::encode(output, infinity), smallest_nan(output), largest_nan(output)}) {
      Product in_d = clean;
      in_d.call.beta = 1.0;
      set_bits(in_d.d.array, 39 * Product::n + 5, bits);
      expect_lost(
          result_of(in_d), [](auto i, auto j) { return i == 39 && j == 5; },
          fmt::format("d has {:x}, {}", bits, clean.text()));
    }
  }
}

TEST_P(DeviceContract, GemmThatOverflowsGivesAnInfinity) {
  for (Product product : products_of(precisions())) {
    const bool widens = product.a.type() != product.d.type();
    if (widens && product.a.type() == ElementType::f16) continue;  // fp32 represents any such product
    const double large = product.a.type() == ElementType::f64   ? 1e200
                         : product.a.type() == ElementType::f16 ? 6e4
                                                                : 1e30;
    product.a.array.set(product.in_a(7, 3), large);
    product.b.array.set(product.in_b(3, 9), -large);
    const DeviceMatrix a = upload(product.a), b = upload(product.b), d = upload(product.d);
    Matrix result = run(device(), stream(), product, a, b, d);
    download(d, result);
    EXPECT_EQ(result.get(7, 9), -infinity) << product.text();
    EXPECT_TRUE(std::isfinite(result.get(6, 9))) << product.text();
  }
}

TEST_P(DeviceContract, ActivateLosesNothingThatIsNotFinite) {
  for (const ElementType type : all_types)
    for (const Shape& shape : shapes)
      for (const int iterations : {0, 2})
        for (const double lost : {nan, infinity}) {  // relu turns -infinity into 0
          const Array clean_bias = uniform(ElementType::f32, shape.columns, 5);
          for (const Place& place : places) {
            Matrix z = uniform(type, shape, 4);
            z.set(place.row, place.column, lost);
            const DeviceMatrix h = upload(z);
            const DeviceArray bias = upload(clean_bias);
            EXPECT_OK(device().activate(h.view, bias.floats(), {.iterations = iterations}, stream()));
            download(h, z);
            expect_lost(
                z, [&](auto r, auto c) { return r == place.row && c == place.column; },
                text_of(lost, type, "h"));
          }
          Matrix z = uniform(type, shape, 4);
          Array lost_bias = clean_bias;
          lost_bias.set(11, lost);
          const DeviceMatrix h = upload(z);
          const DeviceArray bias = upload(lost_bias);
          EXPECT_OK(device().activate(h.view, bias.floats(), {.iterations = iterations}, stream()));
          download(h, z);
          expect_lost(
              z, [](auto, auto c) { return c == 11; }, text_of(lost, type, "bias"));
        }
}

TEST_P(DeviceContract, ActivationGradientLosesNothingThatIsNotFinite) {
  for (const ElementType type : all_types)
    for (const ElementType sum_type : {ElementType::f32, ElementType::bf16})
      for (const Shape& shape : shapes)
        for (const Place& place : places) {
          const auto expect_shown = [&](const Matrix& gradient, const Matrix& h, const std::string& what) {
            const DeviceMatrix g = upload(gradient), h_on_device = upload(h);
            const DeviceArray sums = upload(Array(sum_type, shape.columns));
            EXPECT_OK(device().activation_gradient(g.view, h_on_device.view, sums.view(), stream()));
            Matrix result = gradient;
            download(g, result);
            expect_lost(
                result, [&](auto r, auto c) { return r == place.row && c == place.column; }, what);
            expect_lost(
                download(sums), [&](auto c) { return c == place.column; }, what + ", sums");
          };
          for (const double lost : lost_values) {  // an infinity appears if the activation passes it
            Matrix gradient = uniform(type, shape, 6), h = uniform(type, shape, 7);
            gradient.set(place.row, place.column, lost);
            h.set(place.row, place.column, 0.5);
            expect_shown(gradient, h, text_of(lost, type, "gradient"));
          }
          for (const double masked : {-0.5, 0.0}) {
            Matrix gradient = uniform(type, shape, 6), h = uniform(type, shape, 7);
            gradient.set(place.row, place.column, nan);
            h.set(place.row, place.column, masked);
            expect_shown(gradient, h, text_of(nan, type, "masked gradient"));
          }
          Matrix h = uniform(type, shape, 7);
          h.set(place.row, place.column, nan);
          expect_shown(uniform(type, shape, 6), h, text_of(nan, type, "h"));
        }
}

TEST_P(DeviceContract, LossGradientLosesNothingThatIsNotFinite) {
  constexpr std::uint64_t seed = 77;
  const auto taps = [](std::int64_t output, std::int64_t inputs, std::int64_t input) {
    for (int tap = 0; tap < math::target_taps; ++tap)
      if (math::target_tap(seed, static_cast<std::uint32_t>(output), tap, static_cast<std::uint32_t>(inputs))
              .input == input)
        return true;
    return false;
  };
  for (const ElementType type : all_types)
    for (const ElementType sum_type : {ElementType::f32, ElementType::bf16})
      for (const Shape& shape : shapes)
        for (const double lost : lost_values) {
          using Lost = std::function<bool(std::int64_t, std::int64_t)>;
          const auto expect_shown = [&](const Matrix& z, const Matrix& x, const Array& bias,
                                        const Lost& where, const std::string& what) {
            const DeviceMatrix z_on_device = upload(z), x_on_device = upload(x);
            const DeviceArray b = upload(bias), sums = upload(Array(sum_type, shape.columns));
            const DeviceArray loss = upload(Array(ElementType::f32, 1));
            EXPECT_OK(device().loss_gradient(
                {z_on_device.view, x_on_device.view, b.floats(), seed, 0.25f, sums.view(), loss.floats()},
                stream()));
            Matrix result = z;
            download(z_on_device, result);
            expect_lost(result, where, what);
            const auto in_column = [&](std::int64_t c) {
              for (std::int64_t r = 0; r < shape.rows; ++r)
                if (where(r, c)) return true;
              return false;
            };
            expect_lost(download(sums), in_column, what + ", sums");
            EXPECT_FALSE(std::isfinite(download(loss).get(0))) << what << ", loss";
          };
          const Matrix z = uniform(type, shape, 8), x = uniform(type, shape, 9);
          const Array bias = uniform(ElementType::f32, shape.columns, 10);
          for (const Place& place : places) {
            Matrix lost_z = z;
            lost_z.set(place.row, place.column, lost);
            expect_shown(
                lost_z, x, bias, [&](auto r, auto c) { return r == place.row && c == place.column; },
                text_of(lost, type, "z"));
          }
          const auto input = static_cast<std::int64_t>(
              math::target_tap(seed, 3, 0, static_cast<std::uint32_t>(shape.columns)).input);
          Matrix lost_x = x;
          lost_x.set(17, input, lost);
          expect_shown(
              z, lost_x, bias, [&](auto r, auto c) { return r == 17 && taps(c, shape.columns, input); },
              text_of(lost, type, "x"));
          Array lost_bias = bias;
          lost_bias.set(30, lost);
          expect_shown(
              z, x, lost_bias, [](auto, auto c) { return c == 30; }, text_of(lost, type, "bias"));
        }
}

TEST_P(DeviceContract, CastLosesNothingThatIsNotFinite) {
  constexpr std::int64_t count = 37;
  for (const ElementType from : all_types)
    for (const ElementType to : all_types)
      for (const std::int64_t place : {0, 18, 36}) {
        Array source = uniform(from, count, 11);
        const std::uint64_t sign = std::uint64_t{1} << (8 * size_of(from) - 1);
        for (const std::uint64_t bits : {smallest_nan(from), smallest_nan(from) | sign}) {
          set_bits(source, place, bits);
          const DeviceArray source_on_device = upload(source), result = upload(Array(to, count));
          EXPECT_OK(device().cast(result.view(), source_on_device.view(), stream()));
          const Array cast = download(result);
          expect_lost(
              cast, [&](auto i) { return i == place; }, text_of(nan, to, "a cast"));
          EXPECT_TRUE(std::isnan(cast.get(place))) << to_string(from) << " to " << to_string(to);
        }
        for (const double lost : {infinity, -infinity}) {
          source.set(place, lost);
          const DeviceArray source_on_device = upload(source), result = upload(Array(to, count));
          EXPECT_OK(device().cast(result.view(), source_on_device.view(), stream()));
          const Array cast = download(result);
          expect_lost(
              cast, [&](auto i) { return i == place; }, text_of(lost, to, "a cast"));
          EXPECT_EQ(cast.get(place), lost) << to_string(from) << " to " << to_string(to);
        }
      }
}

namespace {

/// Flat arrays that an optimizer processes: weights, gradient, two states.
struct Parameters {
  static constexpr std::int64_t count = 1003;
  Array weights = uniform(ElementType::f32, count, 12);
  Array gradient;
  Array first = uniform(ElementType::f32, count, 13);
  Array second{ElementType::f32, count};

  explicit Parameters(ElementType gradient_type) : gradient(uniform(gradient_type, count, 14)) {
    for (std::int64_t i = 0; i < count; ++i) second.set(i, 0.5);
  }
};

constexpr ElementType gradient_types[] = {ElementType::f32, ElementType::bf16};
constexpr ElementType copy_types[] = {ElementType::f64, ElementType::f16, ElementType::bf16};

}  // namespace

TEST_P(DeviceContract, OptimizersLoseNothingThatIsNotFinite) {
  constexpr math::Sgd plain{.rate = 0.05f, .momentum = 0.0f, .gradient_scale = 0.5f};
  constexpr math::Sgd sgd{.rate = 0.05f, .momentum = 0.9f, .gradient_scale = 0.5f};
  constexpr math::Adam adam{.rate = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.99f,
                            .epsilon = 1e-8f,
                            .correction1 = 0.1f,
                            .correction2 = 0.01f,
                            .gradient_scale = 0.5f};
  using Step = std::function<Status(const ParameterRange&, float* first, float* second)>;
  const auto expect_shown = [&](const Step& step, const Parameters& parameters, ElementType copy_type,
                                std::int64_t place, const std::string& what) {
    const DeviceArray w = upload(parameters.weights), g = upload(parameters.gradient);
    const DeviceArray first = upload(parameters.first), second = upload(parameters.second);
    const DeviceArray copy = upload(Array(copy_type, Parameters::count));
    EXPECT_OK(step({w.floats(), g.view(), copy.view(), Parameters::count}, first.floats(), second.floats()));
    const auto at_place = [&](std::int64_t i) { return i == place; };
    expect_lost(download(w), at_place, what + ", weights");
    expect_lost(download(copy), at_place, what + ", compute copy");
  };
  const Step plain_step = [&](const auto& range, float*, float*) {
    return device().sgd_step(range, nullptr, plain, stream());
  };
  const Step sgd_step = [&](const auto& range, float* first, float*) {
    return device().sgd_step(range, first, sgd, stream());
  };
  const Step adam_step = [&](const auto& range, float* first, float* second) {
    return device().adam_step(range, first, second, adam, stream());
  };
  for (const ElementType gradient_type : gradient_types)
    for (const ElementType copy_type : copy_types)
      for (const double lost : lost_values)
        for (const std::int64_t place : {std::int64_t{0}, Parameters::count / 2, Parameters::count - 1}) {
          const Parameters clean(gradient_type);
          Parameters in_weights = clean, in_gradient = clean, in_first = clean, in_second = clean;
          in_weights.weights.set(place, lost);
          in_gradient.gradient.set(place, lost);
          in_first.first.set(place, lost);
          in_second.second.set(place, nan);  // the second moment is infinite, so the weight stays finite
          for (const Step& step : {plain_step, sgd_step, adam_step}) {
            expect_shown(step, in_weights, copy_type, place, text_of(lost, ElementType::f32, "weights"));
            expect_shown(step, in_gradient, copy_type, place, text_of(lost, gradient_type, "gradient"));
          }
          expect_shown(sgd_step, in_first, copy_type, place, text_of(lost, ElementType::f32, "velocity"));
          expect_shown(adam_step, in_first, copy_type, place,
                       text_of(lost, ElementType::f32, "first moment"));
          expect_shown(adam_step, in_second, copy_type, place,
                       text_of(nan, ElementType::f32, "second moment"));
        }
}

TEST_P(DeviceContract, AnInfiniteSecondMomentStaysInItsPlace) {
  constexpr math::Adam adam{.rate = 0.01f,
                            .beta1 = 0.9f,
                            .beta2 = 0.99f,
                            .epsilon = 1e-8f,
                            .correction1 = 0.1f,
                            .correction2 = 0.01f,
                            .gradient_scale = 0.5f};
  Parameters parameters(ElementType::f32);
  parameters.second.set(500, infinity);
  const DeviceArray w = upload(parameters.weights), g = upload(parameters.gradient);
  const DeviceArray first = upload(parameters.first), second = upload(parameters.second);
  EXPECT_OK(device().adam_step({w.floats(), g.view(), {}, Parameters::count}, first.floats(), second.floats(),
                               adam, stream()));
  expect_lost(
      download(second), [](auto i) { return i == 500; }, "infinity in second moment");
}

}  // namespace egt::contract
