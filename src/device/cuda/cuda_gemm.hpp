#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "device/cuda/cuda_stream.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// A prepared GEMM: its cuBLASLt descriptors and algorithm. Immutable, so streams share it.
struct GemmPlan;

/// Chooses the algorithm of a GEMM once by cuBLASLt's heuristic. The choice is the same on every device of a
/// model, so that ranks' results agree bit for bit. Algorithms that accumulate in the result in arbitrary
/// order are excluded. Thread-safe.
class GemmPlanner {
 public:
  GemmPlanner();
  ~GemmPlanner();

  /// Enqueues the GEMM. m, n and k must be above 0, and check_gemm must have accepted it. unsupported:
  /// cuBLASLt has no algorithm for it.
  Status multiply(const Gemm& gemm, CudaStream& stream);

 private:
  /// Everything that the choice depends on.
  struct Key {
    Precision precision;
    ElementType a_type, b_type, d_type;
    const float *a_scale, *b_scale;
    const void* relu_bias;
    bool a_transposed, b_transposed;
    std::int64_t m, n, k, a_leading, b_leading, d_leading;
    std::uint32_t a_alignment, b_alignment, d_alignment;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const Gemm& gemm);
  Result<std::shared_ptr<const GemmPlan>> plan(const Gemm& gemm, const CudaStream& stream);

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const GemmPlan>> plans_;
};

}  // namespace egt
