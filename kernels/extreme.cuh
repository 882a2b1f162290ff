#pragma once

#include "kernels/matrix.cuh"

namespace egt::kernels {

/// `activate` with transcendental chains.
int activate_extreme(const Launch& launch, const MatrixView& h, const float* bias,
                     const ExtremeArguments& extreme);

}  // namespace egt::kernels
