#include "device/cuda/cuda_dnn.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#if EGT_WITH_CUDNN
#include "device/cuda/cuda_native.hpp"
#include "device/cuda/cudnn_library.hpp"
#include "device/dnn_arguments.hpp"
#endif

namespace egt {

#if EGT_WITH_CUDNN

namespace {

/// Example: "cuDNN 9.19.0".
std::string library_text() {
  const std::size_t version = cudnnGetVersion();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class CudaDnn : public Dnn {
 public:
  explicit CudaDnn(std::unique_ptr<CudnnLibrary> library) : library_(std::move(library)) {}
  ~CudaDnn() override { static_cast<void>(select_cuda_device(library_->device().info().index)); }

  const std::string& library() const override { return text_; }

  Support supports(Precision precision) const override {
    if (precision == Precision::fp32 || precision == Precision::tf32 || precision == Precision::bf16)
      return library_->device().supports(precision);
    return {fmt::format("convolutions are in fp32, tf32 or bf16, not in {}", to_string(precision))};
  }

  Result<std::unique_ptr<Convolution>> make(const ConvolutionShape& shape) override {
    EGT_TRY(check_shape(shape));
    EGT_TRY(prepare(shape.precision));
    return make_cudnn_convolution(*library_, shape);
  }
  Result<std::unique_ptr<BatchNorm>> make(const BatchNormShape& shape) override {
    EGT_TRY(check_shape(shape));
    EGT_TRY(prepare(precision_of(shape.type)));
    return make_cuda_batch_norm(*library_, shape);
  }
  Result<std::unique_ptr<Pooling>> make(const PoolingShape& shape) override {
    EGT_TRY(check_shape(shape));
    EGT_TRY(prepare(precision_of(shape.type)));
    return make_cudnn_pooling(*library_, shape);
  }

 private:
  static Precision precision_of(ElementType type) {
    return type == ElementType::bf16 ? Precision::bf16 : Precision::fp32;
  }
  /// Checks that the GPU supports the precision and makes it the thread's current one.
  Status prepare(Precision precision) const {
    if (const Support support = supports(precision); !support.yes())
      return Status(StatusCode::unsupported, support.why_not);
    return select_cuda_device(library_->device().info().index);
  }

  const std::unique_ptr<CudnnLibrary> library_;
  const std::string text_ = library_text();
};

}  // namespace

Result<std::unique_ptr<Dnn>> open_cuda_dnn(Device& device) {
  EGT_TRY_ASSIGN(std::unique_ptr<CudnnLibrary> library, CudnnLibrary::open(device));
  return std::unique_ptr<Dnn>(std::make_unique<CudaDnn>(std::move(library)));
}

#else

Result<std::unique_ptr<Dnn>> open_cuda_dnn(Device&) {
  return Status(
      StatusCode::unavailable,
      "this program was built without cuDNN: install cuDNN 9 with its headers (libcudnn9-dev), then "
      "build it again");
}

#endif

}  // namespace egt
