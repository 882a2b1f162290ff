#include "device/host/onednn/host_dnn.hpp"

#if EGT_WITH_ONEDNN

#include <omp.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/dnn_arguments.hpp"
#include "device/host/onednn/host_primitive.hpp"

namespace egt {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

Type type_of(ElementType type) {
  return type == ElementType::bf16 ? Type::bf16 : Type::f32;
}

Desc images(const ImageShape& shape, ElementType type, Tag tag = Tag::nhwc) {
  return Desc({shape.images, shape.channels, shape.height, shape.width}, type_of(type), tag);
}

Desc channels(const ImageShape& shape) {
  return Desc({shape.channels}, Type::f32, Tag::x);
}

/// Shared ownership, because enqueued work may outlive the operation that enqueued it.
using SharedPrimitive = std::shared_ptr<const HostPrimitive>;

template <std::size_t count>
void enqueue(const SharedPrimitive& primitive, const std::array<const void*, count>& data, Stream& stream) {
  std::array<void*, count> addresses;
  for (std::size_t i = 0; i < count; ++i) addresses[i] = const_cast<void*>(data[i]);
  HostStream& host = as_host_stream(stream);
  host.enqueue([primitive, addresses, &host] { return primitive->run(host, addresses); });
}

/// API differences between oneDNN 2 and 3. The latter has no operation descriptors.
#if DNNL_VERSION_MAJOR >= 3
template <typename Primitive, typename... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, const Arguments&... arguments) {
  return typename Primitive::primitive_desc(engine, arguments..., primitive_attributes());
}
template <typename Primitive, typename Hint, typename... Arguments>
typename Primitive::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& hint,
                                                     const Arguments&... arguments) {
  return typename Primitive::primitive_desc(engine, arguments..., hint, primitive_attributes());
}
#else
template <typename Primitive, typename... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine, const Arguments&... arguments) {
  return typename Primitive::primitive_desc(typename Primitive::desc(arguments...), primitive_attributes(),
                                            engine);
}
template <typename Primitive, typename Hint, typename... Arguments>
typename Primitive::primitive_desc describe_backward(const dnnl::engine& engine, const Hint& hint,
                                                     const Arguments&... arguments) {
  return typename Primitive::primitive_desc(typename Primitive::desc(arguments...), primitive_attributes(),
                                            engine, hint);
}
#endif

class HostConvolution final : public Convolution {
 public:
  HostConvolution(const dnnl::engine& engine, int threads, const ConvolutionShape& shape) {
    const ElementType type = storage_type(shape.precision);
    const Desc x = images(shape.x, type), y = images(shape.y(), type);
    const dnnl::memory::dims sides = {shape.outputs, shape.x.channels, shape.window.kernel,
                                      shape.window.kernel};
    const Desc filter(sides, type_of(type), Tag::ohwi), gradient(sides, Type::f32, Tag::ohwi);
    const Desc any(sides, type_of(type), Tag::any), any_gradient(sides, Type::f32, Tag::any);
    const dnnl::memory::dims strides(2, shape.window.stride), padding(2, shape.window.padding);
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const auto forward = describe<dnnl::convolution_forward>(engine, dnnl::prop_kind::forward_training,
                                                             direct, x, any, y, strides, padding, padding);
    forward_ = std::make_shared<HostPrimitive>(
        engine, threads, dnnl::convolution_forward(forward), forward.scratchpad_desc(),
        std::vector<PrimitiveArgument>{{DNNL_ARG_SRC, x, x, false},
                                       {DNNL_ARG_WEIGHTS, filter, forward.weights_desc(), false},
                                       {DNNL_ARG_DST, y, y, true}});
    const auto data = describe_backward<dnnl::convolution_backward_data>(engine, forward, direct, x, any, y,
                                                                         strides, padding, padding);
    backward_data_ = std::make_shared<HostPrimitive>(
        engine, threads, dnnl::convolution_backward_data(data), data.scratchpad_desc(),
        std::vector<PrimitiveArgument>{{DNNL_ARG_DIFF_DST, y, y, false},
                                       {DNNL_ARG_WEIGHTS, filter, data.weights_desc(), false},
                                       {DNNL_ARG_DIFF_SRC, x, x, true}});
    const auto weights = describe_backward<dnnl::convolution_backward_weights>(
        engine, forward, direct, x, any_gradient, y, strides, padding, padding);
    backward_filter_ = std::make_shared<HostPrimitive>(
        engine, threads, dnnl::convolution_backward_weights(weights), weights.scratchpad_desc(),
        std::vector<PrimitiveArgument>{{DNNL_ARG_SRC, x, x, false},
                                       {DNNL_ARG_DIFF_DST, y, y, false},
                                       {DNNL_ARG_DIFF_WEIGHTS, gradient, weights.diff_weights_desc(), true}});
  }

  Status forward(const void* x, const void* filter, void* y, Stream& stream) override {
    EGT_TRY(check_operands("convolution", {{"x", x}, {"filter", filter}, {"y", y}}));
    enqueue<3>(forward_, {x, filter, y}, stream);
    return {};
  }
  Status backward_data(const void* y_gradient, const void* filter, void* x_gradient,
                       Stream& stream) override {
    EGT_TRY(check_operands("convolution",
                           {{"y_gradient", y_gradient}, {"filter", filter}, {"x_gradient", x_gradient}}));
    enqueue<3>(backward_data_, {y_gradient, filter, x_gradient}, stream);
    return {};
  }
  Status backward_filter(const void* x, const void* y_gradient, float* filter_gradient,
                         Stream& stream) override {
    EGT_TRY(check_operands("convolution",
                           {{"x", x}, {"y_gradient", y_gradient}, {"filter_gradient", filter_gradient}}));
    enqueue<3>(backward_filter_, {x, y_gradient, filter_gradient}, stream);
    return {};
  }

 private:
  SharedPrimitive forward_, backward_data_, backward_filter_;
};

/// Updates the running statistics with those of a batch of `rows` values per channel.
void move_running(const BatchNormState& state, std::int64_t channels, std::int64_t rows) {
  constexpr auto share = static_cast<float>(BatchNormShape::momentum);
  const float unbiased = rows > 1 ? static_cast<float>(rows) / static_cast<float>(rows - 1) : 1.0f;
  for (std::int64_t c = 0; c < channels; ++c) {
    state.running_mean[c] += share * (state.saved_mean[c] - state.running_mean[c]);
    state.running_variance[c] += share * (unbiased * state.saved_deviation[c] - state.running_variance[c]);
  }
}

/// Stores the variance in BatchNormState::saved_deviation.
class HostBatchNorm final : public BatchNorm {
 public:
  HostBatchNorm(const dnnl::engine& engine, int threads, const BatchNormShape& shape) : shape_(shape) {
    using Flags = dnnl::normalization_flags;
    const Desc x = images(shape.x, shape.type), one = channels(shape.x);
    constexpr auto epsilon = static_cast<float>(BatchNormShape::epsilon);
    const auto of_channels = [&one](int name, bool is_output = false) {
      return PrimitiveArgument{name, one, one, is_output};
    };
    const auto forward = [&](dnnl::prop_kind kind, Flags flags) {
#if DNNL_VERSION_MAJOR >= 3
      return describe<dnnl::batch_normalization_forward>(engine, kind, x, x, epsilon, flags);
#else
      return describe<dnnl::batch_normalization_forward>(engine, kind, x, epsilon, flags);
#endif
    };
    const Flags affine =
        Flags::use_scale | Flags::use_shift | (shape.relu ? Flags::fuse_norm_relu : Flags::none);
    const auto training = forward(dnnl::prop_kind::forward_training, affine);
    const auto inference = forward(dnnl::prop_kind::forward_inference, affine | Flags::use_global_stats);
    // The ReLU mask for the backward pass.
    const Desc passed = shape.relu ? training.workspace_desc() : Desc();
    passed_ = std::make_shared<std::vector<std::uint8_t>>(std::max<std::size_t>(passed.get_size(), 1));
    for (const bool is_training : {true, false}) {
      const auto& desc = is_training ? training : inference;
      std::vector<PrimitiveArgument> arguments{{DNNL_ARG_SRC, x, x, false},
                                               of_channels(DNNL_ARG_SCALE),
                                               of_channels(DNNL_ARG_SHIFT),
                                               of_channels(DNNL_ARG_MEAN, is_training),
                                               of_channels(DNNL_ARG_VARIANCE, is_training),
                                               {DNNL_ARG_DST, x, x, true}};
      if (is_training && shape.relu) arguments.push_back({DNNL_ARG_WORKSPACE, passed, passed, true});
      (is_training ? training_ : inference_) =
          std::make_shared<HostPrimitive>(engine, threads, dnnl::batch_normalization_forward(desc),
                                          desc.scratchpad_desc(), std::move(arguments));
    }
#if DNNL_VERSION_MAJOR >= 3
    const auto backward = describe_backward<dnnl::batch_normalization_backward>(
        engine, training, dnnl::prop_kind::backward, x, x, x, epsilon, affine);
#else
    const auto backward = describe_backward<dnnl::batch_normalization_backward>(
        engine, training, dnnl::prop_kind::backward, x, x, epsilon, affine);
#endif
    std::vector<PrimitiveArgument> arguments{{DNNL_ARG_SRC, x, x, false},
                                             {DNNL_ARG_DIFF_DST, x, x, false},
                                             of_channels(DNNL_ARG_SCALE),
                                             of_channels(DNNL_ARG_MEAN),
                                             of_channels(DNNL_ARG_VARIANCE),
                                             of_channels(DNNL_ARG_DIFF_SCALE, true),
                                             of_channels(DNNL_ARG_DIFF_SHIFT, true),
                                             {DNNL_ARG_DIFF_SRC, x, x, true}};
#if DNNL_VERSION_MAJOR < 3  // oneDNN 2 requires it without using it; oneDNN 3 rejects unused arguments
    arguments.push_back(of_channels(DNNL_ARG_SHIFT));
#endif
    if (shape.relu) arguments.push_back({DNNL_ARG_WORKSPACE, passed, passed, false});
    backward_ = std::make_shared<HostPrimitive>(engine, threads, dnnl::batch_normalization_backward(backward),
                                                backward.scratchpad_desc(), std::move(arguments));
    for (SharedPrimitive* const with : {&training_, &backward_})
      *with =
          SharedPrimitive(std::make_shared<std::pair<SharedPrimitive, Bytes>>(*with, passed_), with->get());
  }

  Status forward_training(const void* x, const BatchNormState& state, void* y, Stream& stream) override {
    EGT_TRY(check_training(shape_, state));
    EGT_TRY(check_operands("batch normalization", {{"x", x}, {"y", y}}));
    enqueue<7>(training_,
               {x, state.scale, state.shift, state.saved_mean, state.saved_deviation, y, passed_->data()},
               stream);
    as_host_stream(stream).enqueue([state, channels = shape_.x.channels, rows = shape_.x.rows()] {
      move_running(state, channels, rows);
      return Status();
    });
    return {};
  }
  Status forward_inference(const void* x, const BatchNormState& state, void* y, Stream& stream) override {
    EGT_TRY(check_inference(state));
    EGT_TRY(check_operands("batch normalization", {{"x", x}, {"y", y}}));
    enqueue<6>(inference_, {x, state.scale, state.shift, state.running_mean, state.running_variance, y},
               stream);
    return {};
  }
  Status backward(const void* x, const void* y_gradient, const BatchNormState& state, float* scale_gradient,
                  float* shift_gradient, void* x_gradient, Stream& stream) override {
    EGT_TRY(check_backward(state));
    EGT_TRY(check_operands("batch normalization", {{"x", x},
                                                   {"y_gradient", y_gradient},
                                                   {"scale_gradient", scale_gradient},
                                                   {"shift_gradient", shift_gradient},
                                                   {"x_gradient", x_gradient}}));
    enqueue<10>(
        backward_,
        {
          x, y_gradient, state.scale, state.saved_mean, state.saved_deviation, scale_gradient, shift_gradient,
              x_gradient,
#if DNNL_VERSION_MAJOR < 3
              state.shift,
#endif
              passed_->data()
        },
        stream);
    return {};
  }

 private:
  using Bytes = std::shared_ptr<std::vector<std::uint8_t>>;

  BatchNormShape shape_;
  Bytes passed_;  ///< also shared with enqueued work
  SharedPrimitive training_, inference_, backward_;
};

class HostPooling final : public Pooling {
 public:
  HostPooling(const dnnl::engine& engine, int threads, const PoolingShape& shape) {
    const Desc x = images(shape.x, shape.type), y = images(shape.y(), shape.type);
    const dnnl::memory::dims strides(2, shape.window.stride), kernel(2, shape.window.kernel),
        padding(2, shape.window.padding);
    const auto kind = shape.kind == PoolingKind::maximum ? dnnl::algorithm::pooling_max
                                                         : dnnl::algorithm::pooling_avg_exclude_padding;
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::memory::dims dilation(2, 0);
    const auto forward = describe<dnnl::pooling_forward>(engine, dnnl::prop_kind::forward_training, kind, x,
                                                         y, strides, kernel, dilation, padding, padding);
    const auto backward = describe_backward<dnnl::pooling_backward>(engine, forward, kind, x, y, strides,
                                                                    kernel, dilation, padding, padding);
#else
    const auto forward = describe<dnnl::pooling_forward>(engine, dnnl::prop_kind::forward_training, kind, x,
                                                         y, strides, kernel, padding, padding);
    const auto backward = describe_backward<dnnl::pooling_backward>(engine, forward, kind, x, y, strides,
                                                                    kernel, padding, padding);
#endif
    std::vector<PrimitiveArgument> there = {{DNNL_ARG_SRC, x, x, false}, {DNNL_ARG_DST, y, y, true}};
    std::vector<PrimitiveArgument> back = {{DNNL_ARG_DIFF_DST, y, y, false}, {DNNL_ARG_DIFF_SRC, x, x, true}};
    const Desc places = forward.workspace_desc();
    places_bytes = shape.kind == PoolingKind::maximum ? places.get_size() : 0;
    if (places_bytes > 0) {
      there.push_back({DNNL_ARG_WORKSPACE, places, places, true});
      back.push_back({DNNL_ARG_WORKSPACE, places, places, false});
    }
    forward_ = std::make_shared<HostPrimitive>(engine, threads, dnnl::pooling_forward(forward),
                                               forward.scratchpad_desc(), std::move(there));
    backward_ = std::make_shared<HostPrimitive>(engine, threads, dnnl::pooling_backward(backward),
                                                backward.scratchpad_desc(), std::move(back));
  }

  Status forward(const void* x, void* y, Stream& stream) override {
    EGT_TRY(check_operands("pooling", {{"x", x}, {"y", y}}));
    if (places_bytes == 0)
      enqueue<2>(forward_, {x, y}, stream);
    else
      enqueue<3>(forward_, {x, y, places.data()}, stream);
    return {};
  }
  Status backward(const void* x, const void* y, const void* y_gradient, void* x_gradient,
                  Stream& stream) override {
    EGT_TRY(check_operands("pooling",
                           {{"x", x}, {"y", y}, {"y_gradient", y_gradient}, {"x_gradient", x_gradient}}));
    if (places_bytes == 0)
      enqueue<2>(backward_, {y_gradient, x_gradient}, stream);
    else
      enqueue<3>(backward_, {y_gradient, x_gradient, places.data()}, stream);
    return {};
  }

  std::size_t places_bytes = 0;  ///< size of the positions of the maxima
  Buffer places;

 private:
  SharedPrimitive forward_, backward_;
};

class HostDnn final : public Dnn {
 public:
  explicit HostDnn(Device& device)
      : device_(device), threads_(device.info().multiprocessors), engine_(dnnl::engine::kind::cpu, 0) {
    const dnnl_version_t* version = dnnl_version();
    library_ = fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
    const bool has_bf16 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
    if (!has_bf16) why_no_bf16_ = "oneDNN needs AVX-512 for bf16";
  }

  const std::string& library() const override { return library_; }
  Support supports(Precision precision) const override {
    if (precision == Precision::fp32) return {};
    if (precision == Precision::bf16) return {why_no_bf16_};
    return {fmt::format("oneDNN trains convolutional networks in fp32 and bf16, not in {}",
                        to_string(precision))};
  }

  Result<std::unique_ptr<Convolution>> make(const ConvolutionShape& shape) override {
    EGT_TRY(check_shape(shape));
    if (const Support support = supports(shape.precision); !support.yes())
      return Status(StatusCode::unsupported, support.why_not);
    return made<Convolution, HostConvolution>(shape);
  }
  Result<std::unique_ptr<BatchNorm>> make(const BatchNormShape& shape) override {
    EGT_TRY(check_shape(shape));
    return made<BatchNorm, HostBatchNorm>(shape);
  }
  Result<std::unique_ptr<Pooling>> make(const PoolingShape& shape) override {
    EGT_TRY(check_shape(shape));
    EGT_TRY_ASSIGN(auto pooling, (made<HostPooling, HostPooling>(shape)));
    EGT_TRY_ASSIGN(pooling->places, device_.allocate(pooling->places_bytes));
    return std::unique_ptr<Pooling>(std::move(pooling));
  }

 private:
  template <typename Port, typename Operation, typename Shape>
  Result<std::unique_ptr<Port>> made(const Shape& shape) const {
    omp_set_num_threads(threads_);  // oneDNN chooses algorithms for this number
    try {
      return std::unique_ptr<Port>(std::make_unique<Operation>(engine_, threads_, shape));
    } catch (const dnnl::error& error) {
      return status_of(error);
    }
  }

  Device& device_;
  const int threads_;
  dnnl::engine engine_;
  std::string library_, why_no_bf16_;
};

}  // namespace

Result<std::unique_ptr<Dnn>> open_host_dnn(Device& device) {
  try {
    return std::unique_ptr<Dnn>(std::make_unique<HostDnn>(device));
  } catch (const dnnl::error& error) {
    return status_of(error);
  }
}

}  // namespace egt

#else

namespace egt {

Result<std::unique_ptr<Dnn>> open_host_dnn(Device&) {
  return Status(
      StatusCode::unavailable,
      "this program was built without oneDNN: install libdnnl-dev (Debian, Ubuntu) and build it again");
}

}  // namespace egt

#endif
