#pragma once

#include <cstddef>
#include <span>

#include "egt/core/types.hpp"

namespace egt {

/// out[i] = sum of element i of all parts, in the order of `parts`, in fp32, rounded once. `out` may be one
/// of them. `type`: f32 or bf16; count >= 0 elements each.
void reduce_sum(std::byte* out, std::span<const std::byte* const> parts, std::size_t count, ElementType type);

}  // namespace egt
