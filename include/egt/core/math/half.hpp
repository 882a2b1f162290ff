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

EGT_HD float float_from_bits(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// Round to nearest even; every NaN stays a NaN.
EGT_HD Bfloat16 to_bfloat16(float value) {
#ifdef __CUDA_ARCH__  // one instruction, the same bits (a NaN's payload aside)
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
  // Subnormal: adding 0.5 makes the adder round at the right bit.
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

struct Float8 {
  std::uint8_t bits;
};

/// e4m3: no infinity, NaN where all of exponent and mantissa are 1.
EGT_HD float to_float(Float8 value) {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x80u} << 24;
  const std::uint32_t exponent = (value.bits >> 3) & 0xFu, mantissa = value.bits & 7u;
  if ((value.bits & 0x7Fu) == 0x7Fu) return float_from_bits(sign | 0x7FC00000u);
  if (exponent != 0) return float_from_bits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
  return float_from_bits(sign | float_bits(static_cast<float>(mantissa) * (1.0f / 512.0f)));
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

/// Whole numbers, of products.
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

/// fp64 to fp32, toward zero, with the last bit set where it was inexact: rounding that to 16 bits then gives
/// what one rounding from fp64 gives (Boldo, Melquiond, "When double rounding is odd", 2005).
EGT_HD float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  const std::uint32_t bits = float_bits(nearest);
  if (bits & 1u) return nearest;
  const bool away = (value > 0 ? back : -back) > (value > 0 ? value : -value);
  return float_from_bits(away ? bits - 1 : bits + 1);
}

/// One element as another type, rounded once, to nearest even.
template <typename To, typename From>
EGT_HD To convert_element(From value) {
  if constexpr (sizeof(From) == 8 && sizeof(To) == 2)
    return Element<To>::store(round_to_odd(value));
  else
    return Element<To>::store(static_cast<typename Element<To>::compute>(Element<From>::load(value)));
}

}  // namespace egt
