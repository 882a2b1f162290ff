#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace egt {

/// Storage format of an element. f8 is e4m3; f8_e5m2 has fewer mantissa bits (OCP, "8-bit Floating Point
/// Specification", 2023). f8, f8_e5m2, i8 and i32 are for GEMMs only.
enum class ElementType : std::uint8_t { f64, f32, f16, bf16, f8, f8_e5m2, i8, i32 };

/// Arithmetic of a GEMM; `storage_type` is the format of its operands.
enum class Precision : std::uint8_t { fp64, fp32, tf32, fp16, bf16, fp8, int8 };

constexpr std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return 8;
    case ElementType::f32:
    case ElementType::i32:
      return 4;
    case ElementType::f16:
    case ElementType::bf16:
      return 2;
    default:
      return 1;
  }
}

/// True for 8-bit precisions.
constexpr bool is_narrow(Precision precision) {
  return precision == Precision::fp8 || precision == Precision::int8;
}

/// True for 8-bit floating-point types with one scale per tensor: see Quantization.
constexpr bool is_quantized(ElementType type) {
  return type == ElementType::f8 || type == ElementType::f8_e5m2;
}

/// Operand type of a GEMM. For fp8, one of the two may be f8_e5m2 instead, but not both.
constexpr ElementType storage_type(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return ElementType::f64;
    case Precision::fp16:
      return ElementType::f16;
    case Precision::bf16:
      return ElementType::bf16;
    case Precision::fp8:
      return ElementType::f8;
    case Precision::int8:
      return ElementType::i8;
    default:
      return ElementType::f32;
  }
}

/// Type of activations and their gradients in training: the operand type, or its source before quantization.
constexpr ElementType activation_type(Precision precision) {
  return precision == Precision::fp8 ? ElementType::bf16 : storage_type(precision);
}

/// Accumulator type of a GEMM.
constexpr ElementType sum_type(Precision precision) {
  return precision == Precision::fp64   ? ElementType::f64
         : precision == Precision::int8 ? ElementType::i32
                                        : ElementType::f32;
}

constexpr std::string_view to_string(Precision precision) {
  constexpr std::string_view names[] = {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"};
  return names[static_cast<int>(precision)];
}

constexpr std::string_view to_string(ElementType type) {
  constexpr std::string_view names[] = {"f64", "f32", "f16", "bf16", "f8", "f8_e5m2", "i8", "i32"};
  return names[static_cast<int>(type)];
}

/// The precision with that name, or std::nullopt.
constexpr std::optional<Precision> parse_precision(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Precision::int8); ++i)
    if (to_string(static_cast<Precision>(i)) == name) return static_cast<Precision>(i);
  return std::nullopt;
}

}  // namespace egt
