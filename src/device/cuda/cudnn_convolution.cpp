#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/cudnn_library.hpp"
#include "device/dnn_arguments.hpp"

namespace egt {
namespace {

/// An algorithm above this limit is used only if no other is deterministic, because every operation has its
/// own workspace. The limit is not the GPU's free memory, since ranks could then choose differently.
constexpr std::size_t enough_workspace_bytes = std::size_t{256} << 20;

using ConvolutionDesc = CudnnOwned<cudnnConvolutionDescriptor_t>;

/// The algorithm of one of the three convolution passes.
template <typename Algorithm>
struct MemoryGemmPlan {
  ConvolutionDesc desc;  ///< with the algorithm's math type
  Algorithm algorithm{};
  std::size_t workspace_bytes = 0;
};

/// The math type for this precision, given the one that the heuristic returned with an algorithm. Empty if it
/// would round operands to fp16.
std::optional<cudnnMathType_t> math_for(Precision precision, cudnnMathType_t found) {
  if (precision == Precision::fp32) return CUDNN_FMA_MATH;
  if (found == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) return std::nullopt;
  return found;
}

Result<ConvolutionDesc> describe(const ConvolutionShape& shape) {
  EGT_TRY_ASSIGN(ConvolutionDesc desc, make_cudnn(&cudnnCreateConvolutionDescriptor));
  const int stride = cudnn_int(shape.window.stride), padding = cudnn_int(shape.window.padding);
  EGT_TRY(cudnn_status(cudnnSetConvolution2dDescriptor(desc.get(), padding, padding, stride, stride, 1, 1,
                                                       CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
                       "describe a convolution"));
  const cudnnMathType_t math = shape.precision == Precision::fp32 ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  EGT_TRY(cudnn_status(cudnnSetConvolutionMathType(desc.get(), math), "set how a convolution computes"));
  return desc;
}

/// Chooses the first algorithm in the heuristic's order of estimated speed that is deterministic, has the
/// precision, and fits the workspace limit. If none fits, it chooses the one with the smallest workspace. The
/// heuristic is the same on every device of a model. Timed autotuning is not, and ranks' bits would differ.
/// ask(handle, desc, capacity, &count, results): the heuristic; workspace(handle, desc, algorithm, &bytes).
template <typename Found, typename Count, typename Ask, typename Workspace>
auto choose(cudnnHandle_t handle, const ConvolutionShape& shape, std::string_view product, Count&& most,
            Ask&& ask, Workspace&& workspace) -> Result<MemoryGemmPlan<decltype(Found::algo)>> {
  MemoryGemmPlan<decltype(Found::algo)> plan;
  EGT_TRY_ASSIGN(plan.desc, describe(shape));
  int room = 0, count = 0;
  EGT_TRY(cudnn_status(most(handle, &room), "count algorithms"));
  std::vector<Found> results(static_cast<std::size_t>(std::max(room, 1)));
  EGT_TRY(cudnn_status(
      ask(handle, plan.desc.get(), static_cast<int>(results.size()), &count, results.data()),
      fmt::format("choose an algorithm for the {} of a convolution {}", product, to_text(shape))));
  const auto is_fit = [&](const Found& found, std::size_t& bytes) {
    const std::optional<cudnnMathType_t> math = math_for(shape.precision, found.mathType);
    return found.status == CUDNN_STATUS_SUCCESS && found.determinism == CUDNN_DETERMINISTIC && math &&
           cudnnSetConvolutionMathType(plan.desc.get(), *math) == CUDNN_STATUS_SUCCESS &&
           workspace(handle, plan.desc.get(), found.algo, &bytes) == CUDNN_STATUS_SUCCESS;
  };
  std::optional<Found> best;
  for (int i = 0; i < count; ++i) {
    const Found& found = results[static_cast<std::size_t>(i)];
    std::size_t bytes = 0;
    if (!is_fit(found, bytes) || (best && bytes >= plan.workspace_bytes)) continue;
    best = found;
    plan.workspace_bytes = bytes;
    if (bytes <= enough_workspace_bytes) break;
  }
  if (!best)
    return Status(StatusCode::unsupported,
                  fmt::format("cuDNN has no deterministic algorithm for the {} of a convolution {}", product,
                              to_text(shape)));
  plan.algorithm = best->algo;
  EGT_TRY(
      cudnn_status(cudnnSetConvolutionMathType(plan.desc.get(), *math_for(shape.precision, best->mathType)),
                   "set how a convolution computes"));
  return plan;
}

class CudnnConvolution : public Convolution {
 public:
  CudnnConvolution(CudnnLibrary& library, const ConvolutionShape& shape) : library_(library), shape_(shape) {}

  Status prepare();

  Status forward(const void* x, const void* filter, void* y, Stream& stream) override;
  Status backward_data(const void* y_gradient, const void* filter, void* x_gradient, Stream& stream) override;
  Status backward_filter(const void* x, const void* y_gradient, float* filter_gradient,
                         Stream& stream) override;

 private:
  Status choose_forward(cudnnHandle_t handle);
  Status choose_backward_data(cudnnHandle_t handle);
  Status choose_backward_filter(cudnnHandle_t handle);

  CudnnLibrary& library_;
  const ConvolutionShape shape_;
  CudnnTensor x_, y_;
  CudnnFilter filter_;
  MemoryGemmPlan<cudnnConvolutionFwdAlgo_t> forward_;
  MemoryGemmPlan<cudnnConvolutionBwdDataAlgo_t> data_;
  MemoryGemmPlan<cudnnConvolutionBwdFilterAlgo_t> weights_;
  Buffer workspace_;        ///< sized for the max of the three, which run in sequence on a stream
  Buffer narrow_gradient_;  ///< bf16: the filter's gradient as cuDNN writes it, in the operand type
};

Status CudnnConvolution::prepare() {
  const ElementType type = storage_type(shape_.precision);
  EGT_TRY_ASSIGN(x_, describe_images(shape_.x, type));
  EGT_TRY_ASSIGN(y_, describe_images(shape_.y(), type));
  EGT_TRY_ASSIGN(filter_, describe_filter(shape_));
  EGT_TRY(library_.with_handle([this](cudnnHandle_t handle) -> Status {
    EGT_TRY(choose_forward(handle));
    EGT_TRY(choose_backward_data(handle));
    return choose_backward_filter(handle);
  }));
  const std::size_t bytes =
      std::max({forward_.workspace_bytes, data_.workspace_bytes, weights_.workspace_bytes});
  EGT_TRY_ASSIGN(workspace_, library_.device().allocate(bytes));
  if (type == ElementType::f32) return {};
  EGT_TRY_ASSIGN(narrow_gradient_,
                 library_.device().allocate(static_cast<std::size_t>(shape_.filter_count()) * size_of(type)));
  return {};
}

Status CudnnConvolution::choose_forward(cudnnHandle_t handle) {
  EGT_TRY_ASSIGN(
      forward_,
      choose<cudnnConvolutionFwdAlgoPerf_t>(
          handle, shape_, "forward pass", cudnnGetConvolutionForwardAlgorithmMaxCount,
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, int room, int* count, auto* results) {
            return cudnnGetConvolutionForwardAlgorithm_v7(h, x_.get(), filter_.get(), desc, y_.get(), room,
                                                          count, results);
          },
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionForwardWorkspaceSize(h, x_.get(), filter_.get(), desc, y_.get(),
                                                           algorithm, bytes);
          }));
  return {};
}

Status CudnnConvolution::choose_backward_data(cudnnHandle_t handle) {
  EGT_TRY_ASSIGN(
      data_,
      choose<cudnnConvolutionBwdDataAlgoPerf_t>(
          handle, shape_, "data gradient", cudnnGetConvolutionBackwardDataAlgorithmMaxCount,
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, int room, int* count, auto* results) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(h, filter_.get(), y_.get(), desc, x_.get(),
                                                               room, count, results);
          },
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionBackwardDataWorkspaceSize(h, filter_.get(), y_.get(), desc, x_.get(),
                                                                algorithm, bytes);
          }));
  return {};
}

Status CudnnConvolution::choose_backward_filter(cudnnHandle_t handle) {
  EGT_TRY_ASSIGN(
      weights_,
      choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
          handle, shape_, "filter gradient", cudnnGetConvolutionBackwardFilterAlgorithmMaxCount,
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, int room, int* count, auto* results) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, x_.get(), y_.get(), desc, filter_.get(),
                                                                 room, count, results);
          },
          [this](cudnnHandle_t h, cudnnConvolutionDescriptor_t desc, auto algorithm, std::size_t* bytes) {
            return cudnnGetConvolutionBackwardFilterWorkspaceSize(h, x_.get(), y_.get(), desc, filter_.get(),
                                                                  algorithm, bytes);
          }));
  return {};
}

Status CudnnConvolution::forward(const void* x, const void* filter, void* y, Stream& stream) {
  EGT_TRY(check_operands("convolution", {{"x", x}, {"filter", filter}, {"y", y}}));
  return library_.enqueue(stream, "start a convolution", [&](cudnnHandle_t handle) {
    return cudnnConvolutionForward(handle, &CudnnLibrary::one, x_.get(), x, filter_.get(), filter,
                                   forward_.desc.get(), forward_.algorithm, workspace_.data(),
                                   forward_.workspace_bytes, &CudnnLibrary::zero, y_.get(), y);
  });
}

Status CudnnConvolution::backward_data(const void* y_gradient, const void* filter, void* x_gradient,
                                       Stream& stream) {
  EGT_TRY(check_operands("convolution",
                         {{"y_gradient", y_gradient}, {"filter", filter}, {"x_gradient", x_gradient}}));
  return library_.enqueue(stream, "start a convolution's data gradient", [&](cudnnHandle_t handle) {
    return cudnnConvolutionBackwardData(handle, &CudnnLibrary::one, filter_.get(), filter, y_.get(),
                                        y_gradient, data_.desc.get(), data_.algorithm, workspace_.data(),
                                        data_.workspace_bytes, &CudnnLibrary::zero, x_.get(), x_gradient);
  });
}

Status CudnnConvolution::backward_filter(const void* x, const void* y_gradient, float* filter_gradient,
                                         Stream& stream) {
  EGT_TRY(check_operands("convolution",
                         {{"x", x}, {"y_gradient", y_gradient}, {"filter_gradient", filter_gradient}}));
  void* const result = narrow_gradient_ ? narrow_gradient_.data() : filter_gradient;
  EGT_TRY(library_.enqueue(stream, "start a convolution's filter gradient", [&](cudnnHandle_t handle) {
    return cudnnConvolutionBackwardFilter(handle, &CudnnLibrary::one, x_.get(), x, y_.get(), y_gradient,
                                          weights_.desc.get(), weights_.algorithm, workspace_.data(),
                                          weights_.workspace_bytes, &CudnnLibrary::zero, filter_.get(),
                                          result);
  }));
  if (!narrow_gradient_) return {};
  const std::int64_t count = shape_.filter_count();
  return library_.device().cast({filter_gradient, ElementType::f32, count},
                                {narrow_gradient_.data(), storage_type(shape_.precision), count}, stream);
}

}  // namespace

Result<std::unique_ptr<Convolution>> make_cudnn_convolution(CudnnLibrary& library,
                                                            const ConvolutionShape& shape) {
  auto made = std::make_unique<CudnnConvolution>(library, shape);
  EGT_TRY(made->prepare());
  return std::unique_ptr<Convolution>(std::move(made));
}

}  // namespace egt
