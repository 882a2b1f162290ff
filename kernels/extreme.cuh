#pragma once

#include "kernels/matrix.cuh"

namespace egt::kernels {

/// An activation with transcendental chains.
int activate_extreme(const Launch& launch, const Activation& call, std::int64_t piece);

}  // namespace egt::kernels
