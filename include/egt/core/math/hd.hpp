#pragma once

/// Marks element math that the host loops over and a kernel launches: written once, compiled for both.
#ifdef __CUDACC__
#define EGT_HD __host__ __device__ __forceinline__
#else
#define EGT_HD inline
#endif
