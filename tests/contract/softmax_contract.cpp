#include <cmath>
#include <cstring>
#include <limits>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Engine;
using reference::Matrix;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// The outputs of one call.
struct SoftmaxAnswer {
  Matrix gradient;
  std::vector<float> losses;
  std::vector<std::int32_t> larger;
};

/// If `labels` is empty, the label of row r is first_label + r.
struct SoftmaxCase {
  Matrix logits;
  std::vector<std::int32_t> labels;
  std::int64_t first_label = 0;
  float gradient_scale = 0.25f;

  std::int64_t label(std::int64_t row) const {
    return labels.empty() ? first_label + row : labels[static_cast<std::size_t>(row)];
  }
};

SoftmaxAnswer run(DeviceContract& on, const SoftmaxCase& of) {
  const auto rows = static_cast<std::size_t>(of.logits.rows());
  const DeviceMatrix logits = on.upload(of.logits);
  const Buffer labels = on.upload_values(of.labels);
  // One extra row, which must not be modified.
  const Buffer losses = on.upload_values(std::vector<float>(rows + 1, -7.0f));
  const Buffer larger = on.upload_values(std::vector<std::int32_t>(rows + 1, -7));
  EXPECT_OK(on.device().softmax_loss({.logits = logits.view,
                                      .labels = of.labels.empty() ? nullptr : labels.as<std::int32_t>(),
                                      .first_label = of.first_label,
                                      .gradient_scale = of.gradient_scale,
                                      .losses = losses.as<float>(),
                                      .larger = larger.as<std::int32_t>()},
                                     on.stream()));
  SoftmaxAnswer answer{of.logits, on.download_values<float>(losses.data(), rows + 1),
                       on.download_values<std::int32_t>(larger.data(), rows + 1)};
  on.download(logits, answer.gradient);
  EXPECT_TRUE(answer.gradient.padding_is_intact());
  EXPECT_EQ(answer.losses.back(), -7.0f);
  EXPECT_EQ(answer.larger.back(), -7);
  answer.losses.pop_back();
  answer.larger.pop_back();
  return answer;
}

/// Expected results of a row: loss, softmax per column, and the number of logits ahead of the label's.
struct RowReference {
  double loss = not_a_number;
  std::vector<double> softmax;
  std::int32_t larger = 0;
};

RowReference reference_of(const Matrix& logits, std::int64_t row, std::int64_t label) {
  const std::int64_t columns = logits.columns();
  RowReference expected;
  double largest = logits.get(row, 0), sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) largest = std::max(largest, logits.get(row, c));
  for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(logits.get(row, c) - largest);
  for (std::int64_t c = 0; c < columns; ++c)
    expected.softmax.push_back(std::exp(logits.get(row, c) - largest) / sum);
  if (label < 0 || label >= columns) {
    expected.larger = static_cast<std::int32_t>(columns);
    return expected;
  }
  const double of_label = logits.get(row, label);
  expected.loss = std::log(sum) + largest - of_label;
  for (std::int64_t c = 0; c < columns; ++c)
    if (logits.get(row, c) > of_label || (logits.get(row, c) == of_label && c < label)) ++expected.larger;
  return expected;
}

void expect_as_reference(const SoftmaxCase& of, const SoftmaxAnswer& actual) {
  const ElementType type = of.logits.type();
  const double scale = of.gradient_scale;
  for (std::int64_t r = 0; r < of.logits.rows(); ++r) {
    const RowReference expected = reference_of(of.logits, r, of.label(r));
    const auto row = static_cast<std::size_t>(r);
    EXPECT_EQ(actual.larger[row], expected.larger) << "row " << r;
    const bool has_label = !std::isnan(expected.loss);
    EXPECT_EQ(std::isnan(actual.losses[row]), !has_label);
    if (has_label) {
      EXPECT_NEAR(actual.losses[row], expected.loss, 3e-6 * (1 + std::fabs(expected.loss))) << "row " << r;
    }
    for (std::int64_t c = 0; c < of.logits.columns(); ++c) {
      const double found = actual.gradient.get(r, c);
      const double wanted =
          (expected.softmax[static_cast<std::size_t>(c)] - (c == of.label(r) ? 1 : 0)) * scale;
      if (!has_label)
        ASSERT_TRUE(std::isnan(found)) << r << ", " << c;
      else
        ASSERT_TRUE(std::fabs(found - wanted) <=
                    4e-6 * std::fabs(scale) *
                            (expected.softmax[static_cast<std::size_t>(c)] + (c == of.label(r) ? 1 : 0)) +
                        1.01 * reference::rounding_error(type) * std::fabs(wanted) + 1e-38)
            << to_string(type) << " " << r << ", " << c << ": " << found << ", not " << wanted;
    }
  }
}

/// Uniform between -reach and reach.
Matrix logits_of(ElementType type, std::int64_t rows, std::int64_t columns, std::int64_t padding,
                 double reach, std::uint64_t seed) {
  Engine engine(seed);
  Matrix matrix(type, rows, columns, columns + padding);
  std::uniform_real_distribution<double> uniform(-reach, reach);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) matrix.set(r, c, uniform(engine));
  return matrix;
}

std::vector<std::int32_t> labels_of(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  Engine engine(seed);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(rows));
  for (std::int32_t& label : labels)
    label = static_cast<std::int32_t>(engine() % static_cast<std::uint64_t>(columns));
  return labels;
}

constexpr ElementType softmax_types[] = {ElementType::f32, ElementType::bf16};

}  // namespace

TEST_P(DeviceContract, SoftmaxLossIsTheReferences) {
  constexpr std::int64_t sizes[][2] = {{1, 1},   {5, 1},   {1, 2},   {7, 31},    {33, 32},   {16, 255},
                                       {9, 256}, {9, 257}, {3, 513}, {20, 1000}, {2, 10'007}};
  for (const ElementType type : softmax_types)
    for (const auto& [rows, columns] : sizes)
      for (const std::int64_t padding : {0, 3}) {
        const SoftmaxCase of{logits_of(type, rows, columns, padding, 8, 1), labels_of(rows, columns, 2)};
        expect_as_reference(of, run(*this, of));
      }
}

/// As in contrastive losses: the labels lie on a diagonal.
TEST_P(DeviceContract, SoftmaxLossHasLabelsOnADiagonal) {
  for (const ElementType type : softmax_types)
    for (const std::int64_t first : {0, 5, 40}) {
      const SoftmaxCase of{logits_of(type, 24, 64, 1, 4, 3), {}, first, -1.5f};
      expect_as_reference(of, run(*this, of));
    }
}

TEST_P(DeviceContract, SoftmaxLossOfLargeLogitsIsFinite) {
  for (const ElementType type : softmax_types)
    for (const double reach : {1e3, 1e30}) {
      const SoftmaxCase of{logits_of(type, 12, 300, 0, reach, 4), labels_of(12, 300, 5)};
      const SoftmaxAnswer answer = run(*this, of);
      for (const float loss : answer.losses) EXPECT_TRUE(std::isfinite(loss));
      expect_as_reference(of, answer);
    }
}

TEST_P(DeviceContract, SoftmaxLossRanksEqualLogitsByTheirColumns) {
  for (const ElementType type : softmax_types) {
    constexpr std::int64_t columns = 600;
    Matrix logits(type, columns, columns, columns);
    for (std::int64_t r = 0; r < columns; ++r)
      for (std::int64_t c = 0; c < columns; ++c) logits.set(r, c, c % 2 ? 1 : 0);
    const SoftmaxCase of{logits, {}};
    const SoftmaxAnswer answer = run(*this, of);
    for (std::int32_t label = 0; label < columns; ++label)
      EXPECT_EQ(answer.larger[static_cast<std::size_t>(label)],
                label % 2 ? label / 2 : columns / 2 + label / 2)
          << label;
    expect_as_reference(of, answer);
  }
}

TEST_P(DeviceContract, SoftmaxLossOfALabelThatIsNoColumnIsNotANumber) {
  for (const ElementType type : softmax_types) {
    constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min(), most = ~least;
    const SoftmaxCase of{logits_of(type, 7, 65, 2, 4, 6), {0, -1, 65, 64, least, most, 3}};
    expect_as_reference(of, run(*this, of));
    for (const std::int64_t first :
         {std::int64_t{-3}, std::int64_t{60}, std::int64_t{1} << 40, -(std::int64_t{1} << 40)}) {
      const SoftmaxCase diagonal{of.logits, {}, first};
      expect_as_reference(diagonal, run(*this, diagonal));
    }
  }
}

TEST_P(DeviceContract, SoftmaxLossHidesNoNaN) {
  constexpr std::int64_t columns = 300, label = 17;
  for (const ElementType type : softmax_types)
    for (const std::int64_t place : {std::int64_t{0}, label, columns - 1}) {
      SoftmaxCase of{logits_of(type, 2, columns, 0, 4, 7), {label, label}};
      of.logits.set(0, place, not_a_number);
      const SoftmaxAnswer answer = run(*this, of), clean = run(*this, {of.logits, {label, label}, 0, 0.0f});
      EXPECT_TRUE(std::isnan(answer.losses[0]));
      EXPECT_FALSE(std::isnan(answer.losses[1]));
      for (std::int64_t c = 0; c < columns; ++c) {
        EXPECT_TRUE(std::isnan(answer.gradient.get(0, c)));
        EXPECT_FALSE(std::isnan(answer.gradient.get(1, c)));
      }
      EXPECT_EQ(clean.larger, answer.larger);
      if (place == label) {
        EXPECT_EQ(answer.larger[0], columns);
      } else {
        of.logits.set(0, place, 1e9);
        EXPECT_EQ(answer.larger[0], run(*this, of).larger[0]);
      }
    }
}

TEST_P(DeviceContract, SoftmaxLossWritesWhatIsWantedOnly) {
  for (const ElementType type : softmax_types) {
    SoftmaxCase of{logits_of(type, 40, 333, 1, 6, 8), labels_of(40, 333, 9)};
    const SoftmaxAnswer all = run(*this, of);
    of.gradient_scale = 0;
    const SoftmaxAnswer none = run(*this, of);
    EXPECT_TRUE(none.gradient.array == of.logits.array);
    EXPECT_EQ(none.larger, all.larger);
    EXPECT_EQ(std::memcmp(none.losses.data(), all.losses.data(), 40 * sizeof(float)), 0);

    const Buffer labels = upload_values(of.labels), losses = allocate(40 * sizeof(float)),
                 larger = allocate(40 * sizeof(std::int32_t));
    for (const bool wants_losses : {false, true})
      for (const bool wants_larger : {false, true})
        for (const bool wants_gradient : {false, true}) {
          const DeviceMatrix logits = upload(of.logits);
          EXPECT_OK(device().softmax_loss({.logits = logits.view,
                                           .labels = labels.as<std::int32_t>(),
                                           .gradient_scale = wants_gradient ? 0.25f : 0.0f,
                                           .losses = wants_losses ? losses.as<float>() : nullptr,
                                           .larger = wants_larger ? larger.as<std::int32_t>() : nullptr},
                                          stream()));
          Matrix gradient = of.logits;
          download(logits, gradient);
          EXPECT_TRUE(gradient.array == (wants_gradient ? all.gradient : of.logits).array);
          if (wants_losses) {
            EXPECT_EQ(download_values<float>(losses.data(), 40), all.losses);
          }
          if (wants_larger) {
            EXPECT_EQ(download_values<std::int32_t>(larger.data(), 40), all.larger);
          }
        }
  }
}

TEST_P(DeviceContract, SoftmaxLossIsRepeatableBitForBitAndByItsRowAlone) {
  for (const ElementType type : softmax_types) {
    const SoftmaxCase of{logits_of(type, 200, 777, 0, 6, 10), labels_of(200, 777, 11)};
    const SoftmaxAnswer first = run(*this, of), second = run(*this, of);
    EXPECT_TRUE(first.gradient.array == second.gradient.array);
    EXPECT_EQ(first.losses, second.losses);
    // A row's bits depend neither on its index nor on the distance between rows.
    for (std::int64_t r = 7; r < 200; r += 16) {
      const auto row = static_cast<std::size_t>(r);
      SoftmaxCase of_row{Matrix(type, 1, 777, 780), {of.labels[row]}};
      for (std::int64_t c = 0; c < 777; ++c) of_row.logits.set(0, c, of.logits.get(r, c));
      const SoftmaxAnswer alone = run(*this, of_row);
      EXPECT_EQ(alone.losses[0], first.losses[row]);
      for (std::int64_t c = 0; c < 777; ++c)
        ASSERT_EQ(alone.gradient.get(0, c), first.gradient.get(r, c)) << r << ", " << c;
    }
  }
}

TEST_P(DeviceContract, SoftmaxLossRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  const auto call = [&](MatrixView logits, float scale = 1.0f, const std::int32_t* labels = nullptr,
                        std::int64_t first_label = 0) {
    return device().softmax_loss(
        {.logits = logits, .labels = labels, .first_label = first_label, .gradient_scale = scale}, stream());
  };
  const auto matrix = [&](ElementType type, std::int64_t rows = 4, std::int64_t columns = 5,
                          std::int64_t leading = 0) {
    return MatrixView(memory.data(), type, rows, columns, leading);
  };
  EXPECT_OK(call({nullptr, ElementType::f32, 0, 8}));
  EXPECT_OK(call({nullptr, ElementType::bf16, 0, 0}));
  for (const ElementType type : {ElementType::f64, ElementType::f16, ElementType::f8, ElementType::i8})
    EXPECT_FAILS(invalid_argument, call(matrix(type)));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32, 4, 0)));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32, -4, 5)));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32, 4, 5, 3)));
  EXPECT_FAILS(invalid_argument, call({nullptr, ElementType::f32, 4, 5}));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32, std::int64_t{1} << 31, 1)));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32, 1, std::int64_t{1} << 31)));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32), std::numeric_limits<float>::infinity()));
  EXPECT_FAILS(invalid_argument, call(matrix(ElementType::f32), 1.0f, memory.as<std::int32_t>(), 1));
  finish();
}

}  // namespace egt::contract
