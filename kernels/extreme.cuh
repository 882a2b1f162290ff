#pragma once

#include "kernels/matrix.cuh"

namespace egt::kernels {

/// `activate` with `iterations` > 0 turns of the extreme term; h has elements.
int activate_extreme(const Launch& launch, const MatrixView& h, const float* bias, int iterations);

}  // namespace egt::kernels
