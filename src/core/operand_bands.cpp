#include "egt/core/operand_bands.hpp"

#include <array>
#include <bit>
#include <cassert>
#include <vector>

#include "egt/core/pattern.hpp"

namespace egt {
namespace {

/// A floating-point format without its sign.
struct Format {
  Precision precision;
  int exponent_bits, mantissa_bits;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format fp64{Precision::fp64, 11, 52}, fp32{Precision::fp32, 8, 23}, tf32{Precision::tf32, 8, 23},
    fp16{Precision::fp16, 5, 10}, bf16{Precision::bf16, 8, 7}, fp8{Precision::fp8, 4, 3};

/// Random elements: 1.m * 2^e of either sign, with `mantissa` random leading bits in m.
struct Range {
  int exponent;       ///< lowest e
  int exponent_bits;  ///< e has 2^exponent_bits values; the lowest biased one is a multiple of that
  int mantissa;
  bool is_negative = true;  ///< or positive
};
/// Marker in `Range::exponent` for subnormal numbers, 0.m * 2^(1 - bias).
constexpr int subnormal = -10000;

constexpr OperandBand::Bits bits_of(const Format& f, const Range& r) {
  const std::uint64_t one = 1, sign = r.is_negative ? one << (f.exponent_bits + f.mantissa_bits) : 0,
                      exponents = ((one << r.exponent_bits) - 1) << f.mantissa_bits,
                      mantissas = ((one << r.mantissa) - 1) << (f.mantissa_bits - r.mantissa);
  const int biased = r.exponent == subnormal ? 0 : r.exponent + f.bias();
  return {sign | exponents | mantissas, static_cast<std::uint64_t>(biased) << f.mantissa_bits};
}

/// log2 of the unit that all elements are multiples of.
constexpr int unit_of(const Format& f, const Range& r) {
  return (r.exponent == subnormal ? 1 - f.bias() : r.exponent) - r.mantissa;
}

constexpr OperandBand exact(const Format& f, const char* name, const Range& a, const Range& b) {
  return {f.precision,
          name,
          true,
          bits_of(f, a),
          bits_of(f, b),
          unit_of(f, a) + unit_of(f, b),
          a.exponent == subnormal};
}
/// A band with all mantissa bits. Its sums are rounded, so only sampled rows can be verified.
constexpr OperandBand sampled(const Format& f, const Range& range) {
  return {f.precision, "all bits, sampled rows", false, bits_of(f, range), bits_of(f, range)};
}
/// The same band with operand a as after a ReLU: 0 instead of negative elements.
constexpr OperandBand rectified(OperandBand band) {
  if (band.precision == Precision::fp64)
    band.a.keep &= ~0xFFFFFFFFull;  // so that an element's 0 is one word's
  band.name = "activations, sampled rows";
  band.is_rectified = true;
  return band;
}

// In exact bands, all sums must fit the accumulator. A sum of k products has a root mean square of sqrt(k)
// times those of both operands, in multiples of the band's granule. Seven times that stays below 2^24 for
// fp32 accumulators and below 2^14 for fp8, since some tensor cores keep 14 bits. It stays below 2^44 for
// fp64, so that the verification's weighted sums stay below 2^53.
constexpr const char *mantissa_a = "mantissa of a", *mantissa_b = "mantissa of b", *mantissas = "mantissas",
                     *exponents = "exponents, a positive", *extremes = "a small, b large",
                     *subnormals = "a subnormal, b large";
constexpr OperandBand::Bits int8_bits{0xFF, 0};
constexpr auto bands = std::to_array<OperandBand>({
    exact(fp64, mantissa_a, {0, 0, 20}, {0, 0, 8}),
    exact(fp64, mantissa_b, {0, 0, 8}, {0, 0, 20}),
    exact(fp64, mantissas, {0, 0, 14}, {0, 0, 14}),
    exact(fp64, exponents, {-7, 3, 0, false}, {-7, 3, 0}),
    exact(fp64, extremes, {-900, 0, 20}, {900, 0, 8}),
    exact(fp64, subnormals, {subnormal, 0, 20}, {1000, 0, 8}),
    sampled(fp64, {-7, 3, 52}),
    rectified(sampled(fp64, {-7, 3, 52})),
    exact(fp32, mantissa_a, {0, 0, 13}, {-1, 1, 0}),
    exact(fp32, mantissa_b, {-1, 1, 0}, {0, 0, 13}),
    exact(fp32, mantissas, {0, 0, 6}, {0, 0, 6}),
    exact(fp32, exponents, {-7, 3, 0, false}, {-7, 3, 0}),
    exact(fp32, extremes, {-104, 0, 7}, {110, 0, 4}),
    exact(fp32, subnormals, {subnormal, 0, 10}, {110, 0, 0}),
    sampled(fp32, {-7, 3, 23}),
    rectified(sampled(fp32, {-7, 3, 23})),
    exact(tf32, mantissa_a, {0, 0, 10}, {-1, 1, 0}),
    exact(tf32, mantissa_b, {-1, 1, 0}, {0, 0, 10}),
    exact(tf32, mantissas, {0, 0, 6}, {0, 0, 6}),
    exact(tf32, exponents, {-7, 3, 0, false}, {-7, 3, 0}),
    exact(tf32, extremes, {-104, 0, 7}, {110, 0, 4}),
    sampled(tf32, {-7, 3, 23}),
    rectified(sampled(tf32, {-7, 3, 23})),
    exact(fp16, mantissa_a, {0, 0, 10}, {-1, 1, 0}),
    exact(fp16, mantissa_b, {-1, 1, 0}, {0, 0, 10}),
    exact(fp16, mantissas, {0, 0, 6}, {0, 0, 6}),
    exact(fp16, exponents, {-7, 3, 0, false}, {-7, 3, 0}),
    exact(fp16, extremes, {-13, 0, 7}, {14, 0, 3}),
    exact(fp16, subnormals, {subnormal, 0, 10}, {13, 1, 0}),
    sampled(fp16, {-7, 3, 10}),
    rectified(sampled(fp16, {-7, 3, 10})),
    exact(bf16, mantissa_a, {0, 0, 7}, {0, 0, 3}),
    exact(bf16, mantissa_b, {0, 0, 3}, {0, 0, 7}),
    exact(bf16, mantissas, {0, 0, 6}, {0, 0, 6}),
    exact(bf16, exponents, {-7, 3, 0, false}, {-7, 3, 0}),
    exact(bf16, extremes, {-104, 0, 7}, {110, 0, 3}),
    exact(bf16, subnormals, {subnormal, 0, 7}, {110, 0, 3}),
    sampled(bf16, {-7, 3, 7}),
    rectified(sampled(bf16, {-7, 3, 7})),
    exact(fp8, mantissa_a, {0, 0, 3}, {0, 0, 0}),
    exact(fp8, mantissa_b, {0, 0, 0}, {0, 0, 3}),
    exact(fp8, mantissas, {0, 0, 2}, {0, 0, 1}),
    exact(fp8, exponents, {-3, 2, 0, false}, {1, 1, 0}),
    exact(fp8, extremes, {-6, 0, 3}, {7, 0, 0}),
    exact(fp8, subnormals, {subnormal, 0, 3}, {7, 0, 0}),
    sampled(fp8, {-3, 2, 3}),
    rectified(sampled(fp8, {-3, 2, 3})),
    OperandBand{Precision::int8, "all bits", true, int8_bits, int8_bits},
    OperandBand{Precision::int8, "all bits, sampled rows", false, int8_bits, int8_bits},
    rectified({Precision::int8, "", false, int8_bits, int8_bits}),
});

constexpr unsigned band_bits = 8;
static_assert(bands.size() <= 1u << band_bits);

/// The words that hold the elements, of `zeroed` sign bits.
OperandBlock::Bits in_words(const OperandBand::Bits& element, std::uint64_t zeroed,
                            std::size_t element_bytes) {
  std::uint64_t keep = element.keep, fixed = element.fixed;
  for (std::size_t bytes = element_bytes; bytes < sizeof keep; bytes *= 2) {
    keep |= keep << 8 * bytes;
    fixed |= fixed << 8 * bytes;
    zeroed |= zeroed << 8 * bytes;
  }
  const auto low = [](std::uint64_t bits) { return static_cast<std::uint32_t>(bits); };
  return {low(keep), low(fixed), low(keep >> 32), low(fixed >> 32), low(zeroed), low(zeroed >> 32)};
}

}  // namespace

std::span<const OperandBand> operand_bands() {
  return bands;
}

/// Cycles through exact, all-bits and rectified bands, to balance coverage and load. Verifying every element,
/// as in exact bands, draws less power than a GEMM: with exact bands alone, an H200 drew 672 W instead of 679
/// W. Operands with all bits need more energy per operation than rectified ones, which lowers the rate at a
/// power limit.
std::size_t band_in_turn(Precision precision, std::uint64_t number, const std::set<std::size_t>& left_out) {
  constexpr std::uint64_t cycle = 3, exact_at = 0, rectified_at = 2;
  std::vector<std::size_t> exact;
  std::size_t sampled = 0;
  for (std::size_t i = 0; i < bands.size(); ++i) {
    if (bands[i].precision != precision || left_out.contains(i)) continue;
    if (bands[i].is_exact)
      exact.push_back(i);
    else if (bands[i].is_rectified == (number % cycle == rectified_at))
      sampled = i;
  }
  return exact.empty() || number % cycle != exact_at ? sampled : exact[number / cycle % exact.size()];
}

std::uint32_t operand_parameter(std::size_t band, std::uint64_t matrix_words) {
  assert(band < bands.size() && std::has_single_bit(matrix_words) && matrix_words >= 4);
  return static_cast<std::uint32_t>(band) | static_cast<std::uint32_t>(std::countr_zero(matrix_words))
                                                << band_bits;
}

OperandBlock operand_bits(std::uint32_t parameter) {
  const OperandBand& band = bands[parameter % (1u << band_bits) % bands.size()];
  const std::size_t bytes = size_of(storage_type(band.precision));
  const std::uint64_t sign = std::uint64_t{1} << (8 * bytes - 1);
  return {.matrix_words = 1u << (parameter >> band_bits) % 32,
          .sign_bit = static_cast<std::uint32_t>(8 * bytes - 1) % 32,
          .a = in_words(band.a, band.is_rectified ? sign : 0, bytes),
          .b = in_words(band.b, 0, bytes)};
}

}  // namespace egt
