#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "egt/core/operand_bands.hpp"
#include "tests/contract/device_contract.hpp"

namespace egt::contract {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t exact_rows = 128;

/// Two matrices of a band in device memory, as a block of the memory test holds them, and their GEMM.
struct ExactProduct {
  Buffer words, result, report;
  Gemm gemm;
  int granule = 0;

  ExactProduct(DeviceContract& test, std::size_t band_index, std::uint64_t seed) {
    const OperandBand& band = operand_bands()[band_index];
    const std::int64_t terms = is_narrow(band.precision) ? 2 * exact_rows : exact_rows;
    const ElementType type = storage_type(band.precision), sums = sum_type(band.precision);
    const auto matrix_words =
        static_cast<std::uint64_t>(exact_rows * terms) * size_of(type) / sizeof(std::uint32_t);
    words = test.upload_values(std::vector<std::uint32_t>(2 * matrix_words));
    result = test.upload_values(
        std::vector<char>(static_cast<std::size_t>(exact_rows * exact_rows) * size_of(sums)));
    report = test.upload_values(std::vector<GemmMismatches>(1));
    const Pattern pattern{.kind = PatternKind::operands,
                          .parameter = operand_parameter(band_index, matrix_words),
                          .seed = seed};
    EXPECT_OK(test.device().fill({words.as<std::uint32_t>(), 2 * matrix_words}, pattern, test.stream()));
    gemm = {.precision = band.precision,
            .a = {words.data(), type, exact_rows, terms},
            .b = {words.as<std::uint32_t>() + matrix_words, type, exact_rows, terms},
            .d = {result.data(), sums, exact_rows, exact_rows},
            .b_transposed = true};
    granule = band.granule;
    EXPECT_OK(test.device().synchronize(test.stream(), 60));
  }

  GemmMismatches verify(DeviceContract& test) const {
    EXPECT_OK(test.device().set_zero(report.data(), sizeof(GemmMismatches), test.stream()));
    EXPECT_OK(test.device().verify_exact_gemm(gemm, granule, report.as<GemmMismatches>(), test.stream()));
    return test.download_value<GemmMismatches>(report.data());
  }
  GemmMismatches recompute(DeviceContract& test) const {
    EXPECT_OK(test.device().set_zero(report.data(), sizeof(GemmMismatches), test.stream()));
    EXPECT_OK(test.device().verify_gemm(gemm, report.as<GemmMismatches>(), test.stream()));
    return test.download_value<GemmMismatches>(report.data());
  }
  WordsView result_words() const {
    return {result.as<std::uint32_t>(),
            static_cast<std::uint64_t>(exact_rows * exact_rows) * size_of(gemm.d.type) / 4};
  }
};

std::vector<std::size_t> exact_bands(const Device& device) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < operand_bands().size(); ++i)
    if (operand_bands()[i].is_exact && device.supports(operand_bands()[i].precision).yes()) all.push_back(i);
  return all;
}

/// Row and column of the recorded elements.
std::vector<std::pair<std::int64_t, std::int64_t>> positions_of(const GemmMismatches& found) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const GemmMismatches::Sample& one : found.samples()) all.emplace_back(one.row, one.column);
  return all;
}

std::string name_of_band(std::size_t band) {
  return fmt::format("{} {}", to_string(operand_bands()[band].precision), operand_bands()[band].name);
}

}  // namespace

/// All bands, since a library may flush or align small numbers.
TEST_P(DeviceContract, AnExactGemmIsVerifiedWithoutATolerance) {
  for (const std::size_t band : exact_bands(device()))
    for (const std::uint64_t seed : {1, 2, 3}) {
      const ExactProduct operands(*this, band, seed);
      EXPECT_OK(device().gemm(operands.gemm, stream()));
      const GemmMismatches found = operands.verify(*this);
      EXPECT_EQ(found.wrong, 0u) << name_of_band(band) << ": " << found.sample[0].actual << ", not "
                                 << found.sample[0].expected;
      EXPECT_EQ(found.compared, static_cast<std::uint64_t>(exact_rows * exact_rows)) << name_of_band(band);
      EXPECT_EQ(operands.recompute(*this).wrong, 0u)
          << name_of_band(band) << ": the other verification disagrees";
    }
}

/// Down to the lowest bit, which is far below the rounding bound of VerifyGemm.
TEST_P(DeviceContract, AnyWrongBitOfAnExactGemmIsLocated) {
  for (const std::size_t band : exact_bands(device())) {
    const ExactProduct operands(*this, band, 5);
    EXPECT_OK(device().gemm(operands.gemm, stream()));
    const WordsView words = operands.result_words();
    const std::uint64_t words_per_element = size_of(operands.gemm.d.type) / sizeof(std::uint32_t);
    for (std::uint32_t bit = 0; bit < 32; bit += 3) {
      const std::uint64_t first = (bit * 2654435761u + band) % words.count;
      const Flip fault{.first = first, .mask = 1u << bit};
      EXPECT_OK(device().flip(words, fault, stream()));
      const GemmMismatches found = operands.verify(*this);
      EXPECT_OK(device().flip(words, fault, stream()));
      EXPECT_OK(device().synchronize(stream(), 60));  // the flip needs the memory
      EXPECT_EQ(found.wrong, 1u) << name_of_band(band) << " bit " << bit;
      const auto [row, column, expected, actual, bound] = found.sample[0];
      EXPECT_EQ(row * exact_rows + column, static_cast<std::int64_t>(first / words_per_element))
          << name_of_band(band) << " bit " << bit;
      EXPECT_NE(expected, actual) << name_of_band(band) << " bit " << bit;
    }
  }
}

TEST_P(DeviceContract, ExchangedOrMissingElementsOfAnExactGemmAreDetected) {
  const std::size_t band = exact_bands(device()).front();
  const ExactProduct operands(*this, band, 6);
  EXPECT_EQ(operands.verify(*this).compared,
            static_cast<std::uint64_t>(VerifyExactGemm::max_located_rows * exact_rows))
      << "a GEMM that did not run: every row is wrong, and as many are computed again";
  EXPECT_OK(device().gemm(operands.gemm, stream()));
  const WordsView words = operands.result_words();
  const auto all = download_values<double>(words.data, static_cast<std::size_t>(exact_rows * exact_rows));
  std::vector<double> exchanged = all;
  std::swap(exchanged[5 * exact_rows + 7], exchanged[5 * exact_rows + 90]);
  const Buffer changed = upload_values(exchanged);
  EXPECT_OK(device().copy(words.data, changed.data(), words.bytes(), stream()));
  const GemmMismatches found = operands.verify(*this);
  EXPECT_EQ(found.wrong, 2u) << "the sum of the row is right, the weighted sum is not";
  EXPECT_THAT(positions_of(found), ElementsAre(std::pair(5, 7), std::pair(5, 90)));
}

/// Up to max_samples, every wrong element is recorded; of more, as many, and the area of all.
TEST_P(DeviceContract, WrongElementsOfAGemmAreRecordedWithTheirArea) {
  const ExactProduct operands(*this, exact_bands(device()).front(), 8);
  ASSERT_EQ(operands.gemm.d.type, ElementType::f64);
  const auto find = [&](std::int64_t rows, std::int64_t row_stride, std::int64_t columns) {
    EXPECT_OK(device().gemm(operands.gemm, stream()));
    for (std::int64_t r = 0; r < rows; ++r)
      EXPECT_OK(
          device().flip(operands.result_words(),
                        {.first = static_cast<std::uint64_t>((40 + r * row_stride) * exact_rows + 33) * 2 + 1,
                         .count = static_cast<std::uint64_t>(columns),
                         .stride = 4,
                         .keep = 0,
                         .mask = 0x50000000},
                        stream()));
    const GemmMismatches exact = operands.verify(*this), rounded = operands.recompute(*this);
    for (const GemmMismatches& found : {exact, rounded}) {
      EXPECT_EQ(found.wrong, static_cast<std::uint64_t>(rows * columns));
      EXPECT_EQ(found.rows.first(), 40u);
      EXPECT_EQ(found.rows.last, 40 + (rows - 1) * row_stride);
      EXPECT_EQ(found.columns.first(), 33u);
      EXPECT_EQ(found.columns.last, 33 + (columns - 1) * 2);
      for (const GemmMismatches::Sample& one : found.samples()) EXPECT_NE(one.expected, one.actual);
      const auto positions = positions_of(found);
      EXPECT_EQ(positions.size(), static_cast<std::size_t>(std::min<std::int64_t>(rows * columns, 64)));
      EXPECT_EQ(std::set(positions.begin(), positions.end()).size(), positions.size());
      for (const auto& [row, column] : positions) {
        EXPECT_EQ((row - 40) % row_stride, 0);
        EXPECT_EQ(column % 2, 1);
      }
    }
    return positions_of(exact) == positions_of(rounded);
  };
  EXPECT_TRUE(find(4, 8, 16)) << "64 elements: both verifications record the same";
  find(40, 2, 30);
}

/// Of wrong rows that are not computed again, the number of elements is unknown, but not the place.
TEST_P(DeviceContract, RowsOfAWrongGemmAreKnownAlsoIfTheyAreNotLocated) {
  const ExactProduct operands(*this, exact_bands(device()).front(), 9);
  const GemmMismatches found = operands.verify(*this);
  EXPECT_EQ(found.rows.first(), 0u);
  EXPECT_EQ(found.rows.last, exact_rows - 1);
}

TEST_P(DeviceContract, VerifyExactGemmRejectsOtherGemms) {
  const ExactProduct operands(*this, exact_bands(device()).front(), 7);
  auto* const report = operands.report.as<GemmMismatches>();
  const auto expect_rejected = [&](Gemm gemm) {
    EXPECT_FAILS(invalid_argument, device().verify_exact_gemm(gemm, 0, report, stream()));
  };
  Gemm gemm = operands.gemm;
  gemm.b_transposed = false;
  expect_rejected(gemm);
  gemm = operands.gemm;
  gemm.a.columns = gemm.b.columns = 24;
  expect_rejected(gemm);
  gemm = operands.gemm;
  gemm.alpha = 2;
  expect_rejected(gemm);
  EXPECT_FAILS(invalid_argument, device().verify_exact_gemm(operands.gemm, 0, nullptr, stream()));
}

}  // namespace egt::contract
