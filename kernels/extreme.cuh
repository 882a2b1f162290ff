#pragma once

#include "kernels/matrix.cuh"

namespace egt::kernels {

/// `activate` with turns of the extreme term.
int activate_extreme(const Launch& launch, const MatrixView& h, const float* bias,
                     const ExtremeArguments& extreme);

}  // namespace egt::kernels
