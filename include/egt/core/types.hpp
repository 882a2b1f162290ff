#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace egt {

/// How an element lies in memory.
enum class ElementType : std::uint8_t { f64, f32, f16, bf16 };

/// How a matrix product is computed; `storage_type` tells how its operands lie in memory.
enum class Precision : std::uint8_t { fp64, fp32, tf32, fp16, bf16, fp8 };

constexpr std::size_t size_of(ElementType type) {
  return type == ElementType::f64 ? 8 : type == ElementType::f32 ? 4 : 2;
}

/// The type of activations and of the weights' compute copy. fp8 has none in this version (unsupported).
constexpr ElementType storage_type(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return ElementType::f64;
    case Precision::fp16:
      return ElementType::f16;
    case Precision::bf16:
      return ElementType::bf16;
    default:
      return ElementType::f32;
  }
}

constexpr std::string_view to_string(Precision precision) {
  constexpr std::string_view names[] = {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8"};
  return names[static_cast<int>(precision)];
}

constexpr std::string_view to_string(ElementType type) {
  constexpr std::string_view names[] = {"f64", "f32", "f16", "bf16"};
  return names[static_cast<int>(type)];
}

/// The precision of that name, or nothing.
constexpr std::optional<Precision> parse_precision(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Precision::fp8); ++i)
    if (to_string(static_cast<Precision>(i)) == name) return static_cast<Precision>(i);
  return std::nullopt;
}

}  // namespace egt
