// Replaces cuBLASLt in tests without a GPU, because loading it costs each process up to 0.4 s and 100 MB.
// Defines the functions that the program links with; all except the version abort the process.
#include <cublas_api.h>

#include <cstddef>
#include <cstdlib>

#define EGT_NOT_HERE(name)           \
  extern "C" void cublasLt##name() { \
    std::abort();                    \
  }

extern "C" std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
EGT_NOT_HERE(Create)
EGT_NOT_HERE(Destroy)
EGT_NOT_HERE(GetStatusString)
EGT_NOT_HERE(Matmul)
EGT_NOT_HERE(MatmulAlgoCheck)
EGT_NOT_HERE(MatmulAlgoGetHeuristic)
EGT_NOT_HERE(MatmulDescCreate)
EGT_NOT_HERE(MatmulDescDestroy)
EGT_NOT_HERE(MatmulDescSetAttribute)
EGT_NOT_HERE(MatmulPreferenceCreate)
EGT_NOT_HERE(MatmulPreferenceDestroy)
EGT_NOT_HERE(MatmulPreferenceSetAttribute)
EGT_NOT_HERE(MatrixLayoutCreate)
EGT_NOT_HERE(MatrixLayoutDestroy)
