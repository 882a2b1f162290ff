#pragma once

/// Marks per-element math that is compiled for both host loops and device kernels.
#ifdef __CUDACC__
#define EGT_HD __host__ __device__ __forceinline__
#else
#define EGT_HD inline
#endif
