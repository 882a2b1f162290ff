#include "device/cuda/cuda_gemm.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <bit>

#include "device/cuda/cuda_native.hpp"

namespace egt {
namespace {

constexpr int candidates = 8;

struct DescDestroy {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
};
struct LayoutDestroy {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
struct PreferenceDestroy {
  void operator()(cublasLtMatmulPreference_t preference) const {
    cublasLtMatmulPreferenceDestroy(preference);
  }
};
using Desc = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, DescDestroy>;
using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, LayoutDestroy>;
using Preference = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, PreferenceDestroy>;

Status blas_status(cublasStatus_t status, std::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const StatusCode code = status == CUBLAS_STATUS_NOT_SUPPORTED      ? StatusCode::unsupported
                          : status == CUBLAS_STATUS_ALLOC_FAILED     ? StatusCode::out_of_memory
                          : status == CUBLAS_STATUS_EXECUTION_FAILED ? StatusCode::aborted
                                                                     : StatusCode::internal;
  return Status(code, fmt::format("cuBLAS could not {}: {}", doing, cublasLtGetStatusString(status)), status);
}

cudaDataType_t native_type(ElementType type) {
  switch (type) {
    case ElementType::f64:
      return CUDA_R_64F;
    case ElementType::f16:
      return CUDA_R_16F;
    case ElementType::bf16:
      return CUDA_R_16BF;
    case ElementType::f8:
      return CUDA_R_8F_E4M3;
    case ElementType::f8_e5m2:
      return CUDA_R_8F_E5M2;
    case ElementType::i8:
      return CUDA_R_8I;
    case ElementType::i32:
      return CUDA_R_32I;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t compute_type(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return CUBLAS_COMPUTE_64F;
    case Precision::tf32:
      return CUBLAS_COMPUTE_32F_FAST_TF32;
    case Precision::int8:
      return CUBLAS_COMPUTE_32I;
    default:
      return CUBLAS_COMPUTE_32F;
  }
}

std::int64_t inner_size(const Gemm& gemm) {
  return gemm.a_transposed ? gemm.a.rows : gemm.a.columns;
}

/// Example: "bf16 1024 x 8192 x 4096 (A^T B)".
std::string shape_text(const Gemm& gemm) {
  return fmt::format("{} to {}, {} x {} x {} ({} {})", to_string(gemm.precision), to_string(gemm.d.type),
                     gemm.d.rows, gemm.d.columns, inner_size(gemm), gemm.a_transposed ? "A^T" : "A",
                     gemm.b_transposed ? "B^T" : "B");
}

/// Alignment of an address in bytes: a power of two, up to 256.
std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return 1u << std::countr_zero(address | 256u);
}

template <typename T>
Status set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  return blas_status(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value),
                     "describe a GEMM");
}

template <typename T>
Status set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return blas_status(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
                     "set a preference");
}

/// cuBLAS is column-major, so it sees a row-major matrix as its transpose, columns x rows.
Result<Layout> transposed_layout(const MatrixView& m) {
  cublasLtMatrixLayout_t layout = nullptr;
  EGT_TRY(blas_status(
      cublasLtMatrixLayoutCreate(&layout, native_type(m.type), static_cast<std::uint64_t>(m.columns),
                                 static_cast<std::uint64_t>(m.rows), m.leading),
      "describe a matrix"));
  return Layout(layout);
}

}  // namespace

/// The GEMM as cuBLAS sees it: d^T = op(b)^T op(a)^T. So b comes first with unchanged transpose flags.
struct GemmPlan {
  Desc desc;
  Layout first, second, result;
  cublasLtMatmulAlgo_t algorithm{};
};

namespace {

Status describe(const Gemm& gemm, GemmPlan& plan) {
  cublasLtMatmulDesc_t desc = nullptr;
  EGT_TRY(blas_status(
      cublasLtMatmulDescCreate(&desc, compute_type(gemm.precision), native_type(sum_type(gemm.precision))),
      "describe a GEMM"));
  plan.desc.reset(desc);
  EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_TRANSA, gemm.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_TRANSB, gemm.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (gemm.b_scale != nullptr) EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, gemm.b_scale));
  if (gemm.a_scale != nullptr) EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, gemm.a_scale));
  if (gemm.relu_bias.data != nullptr) {
    EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS));
    EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, gemm.relu_bias.data));
    EGT_TRY(set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, native_type(gemm.relu_bias.type)));
  }
  EGT_TRY_ASSIGN(plan.first, transposed_layout(gemm.b));
  EGT_TRY_ASSIGN(plan.second, transposed_layout(gemm.a));
  EGT_TRY_ASSIGN(plan.result, transposed_layout(gemm.d));
  return {};
}

Result<Preference> preference_for(const Gemm& gemm, std::size_t workspace_bytes) {
  cublasLtMatmulPreference_t raw = nullptr;
  EGT_TRY(blas_status(cublasLtMatmulPreferenceCreate(&raw), "make a preference"));
  Preference preference(raw);
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes}));
  // Split-K partial sums go through the workspace and are reduced in a second pass in fixed order. The scheme
  // that accumulates in place in the result is excluded. Without any scheme, GEMMs of few tiles lose a third
  // of their speed.
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
              static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(gemm.b.data)));
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(gemm.a.data)));
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(gemm.d.data)));
  EGT_TRY(set(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(gemm.d.data)));
  return preference;
}

/// The heuristic's first algorithm that the library accepts for this exact GEMM. Timed autotuning is not
/// used, because ranks could choose differently.
Status choose_algorithm(const Gemm& gemm, const CudaStream& stream, GemmPlan& plan) {
  EGT_TRY_ASSIGN(const Preference preference, preference_for(gemm, stream.workspace_bytes()));
  std::array<cublasLtMatmulHeuristicResult_t, candidates> found{};
  int count = 0;
  const cublasStatus_t asked = cublasLtMatmulAlgoGetHeuristic(
      stream.blas(), plan.desc.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), preference.get(), candidates, found.data(), &count);
  if (asked != CUBLAS_STATUS_NOT_SUPPORTED) EGT_TRY(blas_status(asked, "choose an algorithm"));
  for (int i = 0; i < count; ++i) {
    if (found[static_cast<std::size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
    plan.algorithm = found[static_cast<std::size_t>(i)].algo;
    cublasLtMatmulHeuristicResult_t checked{};
    const cublasStatus_t accepted =
        cublasLtMatmulAlgoCheck(stream.blas(), plan.desc.get(), plan.first.get(), plan.second.get(),
                                plan.result.get(), plan.result.get(), &plan.algorithm, &checked);
    if (accepted == CUBLAS_STATUS_SUCCESS && checked.workspaceSize <= stream.workspace_bytes()) return {};
  }
  return Status(StatusCode::unsupported,
                fmt::format("cuBLAS has no algorithm for the GEMM {}", shape_text(gemm)), asked);
}

}  // namespace

GemmPlanner::GemmPlanner() = default;
GemmPlanner::~GemmPlanner() = default;

GemmPlanner::Key GemmPlanner::key_of(const Gemm& gemm) {
  return {gemm.precision,
          gemm.a.type,
          gemm.b.type,
          gemm.d.type,
          gemm.a_scale,
          gemm.b_scale,
          gemm.relu_bias.data,
          gemm.a_transposed,
          gemm.b_transposed,
          gemm.d.rows,
          gemm.d.columns,
          inner_size(gemm),
          gemm.a.leading,
          gemm.b.leading,
          gemm.d.leading,
          alignment_of(gemm.a.data),
          alignment_of(gemm.b.data),
          alignment_of(gemm.d.data)};
}

Result<std::shared_ptr<const GemmPlan>> GemmPlanner::plan(const Gemm& gemm, const CudaStream& stream) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const GemmPlan>& known = plans_[key_of(gemm)];
  if (!known) {
    auto made = std::make_shared<GemmPlan>();
    EGT_TRY(describe(gemm, *made));
    EGT_TRY(choose_algorithm(gemm, stream, *made));
    known = std::move(made);
  }
  return known;
}

Status GemmPlanner::multiply(const Gemm& gemm, CudaStream& stream) {
  EGT_TRY_ASSIGN(const auto plan, this->plan(gemm, stream));
  const auto start = [&]<typename T>(T alpha, T beta) {
    return cublasLtMatmul(stream.blas(), plan->desc.get(), &alpha, gemm.b.data, plan->first.get(),
                          gemm.a.data, plan->second.get(), &beta, gemm.d.data, plan->result.get(),
                          gemm.d.data, plan->result.get(), &plan->algorithm, stream.workspace(),
                          stream.workspace_bytes(), stream.native());
  };
  const cublasStatus_t status = gemm.precision == Precision::fp64 ? start(gemm.alpha, gemm.beta)
                                : gemm.precision == Precision::int8
                                    ? start(std::int32_t{1}, std::int32_t{0})
                                    : start(static_cast<float>(gemm.alpha), static_cast<float>(gemm.beta));
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return stream.keep(blas_status(status, fmt::format("start the GEMM {}", shape_text(gemm))));
}

}  // namespace egt
