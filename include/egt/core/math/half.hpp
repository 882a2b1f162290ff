#pragma once

#include <cstdint>
#include <cstring>

#include "egt/core/math/hd.hpp"

namespace egt {

/// IEEE binary16 as bits.
struct Half {
  std::uint16_t bits;
};

/// bfloat16 (the upper half of a binary32) as bits.
struct Bfloat16 {
  std::uint16_t bits;
};

EGT_HD std::uint32_t float_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

EGT_HD std::uint32_t bits_of(float value) {
  return float_bits(value);
}

EGT_HD std::uint32_t bits_of(Bfloat16 value) {
  return value.bits;
}

EGT_HD float float_from_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Round to nearest even; every NaN stays a NaN.
EGT_HD Bfloat16 to_bfloat16(float value) {
#ifdef __CUDA_ARCH__  // one instruction, the same bits except a NaN's payload
  Bfloat16 converted;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(converted.bits) : "f"(value));
  return converted;
#else
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

EGT_HD float to_float(Bfloat16 value) {
  return float_from_bits(std::uint32_t{value.bits} << 16);
}

/// Round to nearest even; overflow gives infinity, every NaN stays a NaN, subnormals are kept.
EGT_HD Half to_half(float value) {
#ifdef __CUDA_ARCH__
  Half converted;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(converted.bits) : "f"(value));
  return converted;
#else
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};
  if (magnitude >= 0x38800000u) {  // normal
    const std::uint32_t rebased = magnitude - 0x38000000u;
    return {static_cast<std::uint16_t>(sign | ((rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13))};
  }
  // Subnormal: adding 0.5 lets the adder round at the right bit.
  const float shifted = float_from_bits(magnitude) + 0.5f;
  return {static_cast<std::uint16_t>(sign | (float_bits(shifted) - 0x3F000000u))};
#endif
}

EGT_HD float to_float(Half value) {
#ifdef __CUDA_ARCH__
  float converted;
  asm("cvt.f32.f16 %0, %1;" : "=f"(converted) : "h"(value.bits));
  return converted;
#else
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu, mantissa = value.bits & 0x3FFu;
  if (exponent == 31) return float_from_bits(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return float_from_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * (1.0f / 16777216.0f);
  return float_from_bits(sign | float_bits(magnitude));
#endif
}

/// An 8-bit floating-point number: sign, `exponent_bits`, mantissa. With 4 bits of exponent (e4m3) there is
/// no infinity, and NaN only if all other bits are 1; with 5 (e5m2) both are as in IEEE 754.
template <int exponent_bits>
struct FloatOf8 {
  static constexpr int mantissa_bits = 7 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr std::uint32_t largest = exponent_bits == 4 ? 0x7Eu : 0x7Bu;  ///< bits of the max number
  static constexpr int largest_exponent = exponent_bits == 4 ? 8 : 15;          ///< of 448 or 57344, the max

  std::uint8_t bits;
};
using Float8 = FloatOf8<4>;
using Float8E5m2 = FloatOf8<5>;

template <int exponent_bits>
EGT_HD float to_float(FloatOf8<exponent_bits> value) {
  using T = FloatOf8<exponent_bits>;
  const std::uint32_t sign = std::uint32_t{value.bits & 0x80u} << 24, magnitude = value.bits & 0x7Fu;
  if (exponent_bits == 5 && magnitude == 0x7Cu) return float_from_bits(sign | 0x7F800000u);
  if (magnitude > T::largest) return float_from_bits(sign | 0x7FC00000u);
  const std::uint32_t exponent = magnitude >> T::mantissa_bits;
  if (exponent != 0)
    return float_from_bits(
        sign | ((magnitude << (23 - T::mantissa_bits)) + (static_cast<std::uint32_t>(127 - T::bias) << 23)));
  constexpr float spacing = exponent_bits == 4 ? 0x1p-9f : 0x1p-16f;
  return float_from_bits(sign | float_bits(static_cast<float>(magnitude) * spacing));
}

/// Round to nearest even; infinity and values beyond the max number become that number; a NaN stays a NaN.
template <typename T>
EGT_HD T to_float_of_8(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890  // one instruction, the same bits except a NaN's
  std::uint16_t pair;
  if constexpr (T::mantissa_bits == 3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return {static_cast<std::uint8_t>(pair)};
#else
  constexpr int dropped = 23 - T::mantissa_bits;
  constexpr std::uint32_t rebase = static_cast<std::uint32_t>(127 - T::bias) << 23;
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint8_t>(sign | 0x7Fu)};
  std::uint32_t code;
  if (magnitude >= rebase + (1u << 23)) {  // normal
    const std::uint32_t rebased = magnitude - rebase;
    code = (rebased + (1u << (dropped - 1)) - 1 + ((rebased >> dropped) & 1u)) >> dropped;
  } else {  // subnormal: the sum is rounded at the last bit of `with_last_bit`
    constexpr float with_last_bit = T::mantissa_bits == 3 ? 0x1p14f : 0x1p7f;
    code = float_bits(float_from_bits(magnitude) + with_last_bit) - float_bits(with_last_bit);
  }
  return {static_cast<std::uint8_t>(sign | (code < T::largest ? code : T::largest))};
#endif
}

/// Max power of two, 2^-60 to 2^60, that scales the magnitude with these bits into the range of T. 1 for 0;
/// NaN for infinity and NaN.
template <typename T>
EGT_HD float quantization_factor(std::uint32_t magnitude_bits) {
  constexpr std::uint32_t of_largest = (T::mantissa_bits == 3 ? 6u : 3u) << (23 - T::mantissa_bits);
  if (magnitude_bits >= 0x7F800000u) return float_from_bits(0x7FC00000u);
  if (magnitude_bits == 0) return 1.0f;
  const int exponent = static_cast<int>(magnitude_bits >> 23) - 127;
  int power = T::largest_exponent - exponent - ((magnitude_bits & 0x7FFFFFu) > of_largest ? 1 : 0);
  power = power < -60 ? -60 : power > 60 ? 60 : power;
  return float_from_bits(static_cast<std::uint32_t>(power + 127) << 23);
}

/// The operand rounding of TF32 (10 bits of mantissa), to nearest with ties away from zero, as the host
/// adapter emulates it.
EGT_HD float round_to_tf32(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7F800000u) == 0x7F800000u) return value;
  return float_from_bits((bits + 0x1000u) & 0xFFFFE000u);
}

/// One element of a buffer, read as fp32 and written from fp32 (fp64 passes through double).
template <typename T>
struct Element;
template <>
struct Element<double> {
  using compute = double;
  static EGT_HD double load(double v) { return v; }
  static EGT_HD double store(double v) { return v; }
};
template <>
struct Element<float> {
  using compute = float;
  static EGT_HD float load(float v) { return v; }
  static EGT_HD float store(float v) { return v; }
};
template <>
struct Element<Half> {
  using compute = float;
  static EGT_HD float load(Half v) { return to_float(v); }
  static EGT_HD Half store(float v) { return to_half(v); }
};
template <>
struct Element<Bfloat16> {
  using compute = float;
  static EGT_HD float load(Bfloat16 v) { return to_float(v); }
  static EGT_HD Bfloat16 store(float v) { return to_bfloat16(v); }
};

/// Without `store`: kernels of the quantization write these types in their own way, and only GEMMs read them.
template <int exponent_bits>
struct Element<FloatOf8<exponent_bits>> {
  using compute = float;
  static EGT_HD float load(FloatOf8<exponent_bits> v) { return to_float(v); }
};
template <>
struct Element<std::int8_t> {
  using compute = float;
  static EGT_HD float load(std::int8_t v) { return v; }
};
template <>
struct Element<std::int32_t> {
  using compute = double;
  static EGT_HD double load(std::int32_t v) { return v; }
};

/// Rounds fp64 to fp32 to odd: toward zero, with the last bit set if it was inexact. Rounding that to 16 bits
/// gives the result of one rounding from fp64 (Boldo, Melquiond, "When double rounding is odd", 2005).
EGT_HD float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  const std::uint32_t bits = float_bits(nearest);
  if (bits & 1u) return nearest;
  const bool away = (value > 0 ? back : -back) > (value > 0 ? value : -value);
  return float_from_bits(away ? bits - 1 : bits + 1);
}

/// One element converted to another type, rounded once to nearest even.
template <typename To, typename From>
EGT_HD To convert_element(From value) {
  if constexpr (sizeof(From) == 8 && sizeof(To) == 2)
    return Element<To>::store(round_to_odd(value));
  else
    return Element<To>::store(static_cast<typename Element<To>::compute>(Element<From>::load(value)));
}

}  // namespace egt
