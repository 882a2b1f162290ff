// The train step beside the bare matrix products that it is made of, measured in turn in one run.
//
//   mpirun -np 2 build/egt_bench_train_step --backend host
//   mpirun -np 4 build/egt_bench_train_step --backend cuda --precisions tf32,bf16 --batches 1024,8192
//
// A line a case: milliseconds a step (median of the blocks), of the products alone, their ratio, TFLOP/s a
// device, samples/s of all ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "command/platform.hpp"
#include "egt/core/clock.hpp"
#include "model/mlp_trainer.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/mpi/mpi_session.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 300;

struct Arguments {
  std::string backend = "auto";
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> batches;
  std::vector<std::string> precisions;
  std::string gradient = "fp32";
  float momentum = 0.0f;
  int steps = 40;
  int blocks = 5;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The products of one step, bare: the same shapes, types, order and data (activations behind a ReLU, of
/// which half are 0), each layer in memory of its own, nothing between them.
class Products {
 public:
  static Result<Products> make(Device& device, const Arguments& arguments, std::int64_t batch,
                               Precision precision) {
    Products products(device, arguments.layers, batch, precision);
    const auto type = activation_type(precision);
    EGT_TRY_ASSIGN(products.stream_, device.create_stream(StreamPriority::normal));
    for (std::size_t l = 0; l < arguments.layers.size(); ++l) {
      EGT_TRY(products.add(products.activations_, type, batch, arguments.layers[l]));
      EGT_TRY(products.add(products.differences_, type, batch, arguments.layers[l]));
      if (l == 0) continue;
      EGT_TRY(products.add(products.weights_, type, arguments.layers[l], arguments.layers[l - 1]));
      EGT_TRY(products.add(products.gradients_,
                           precision == Precision::fp64 ? ElementType::f64 : ElementType::f32,
                           arguments.layers[l], arguments.layers[l - 1]));
    }
    EGT_TRY(products.rectify());
    if (precision == Precision::fp8) EGT_TRY(products.quantize());
    return products;
  }

  Status run() {
    if (precision_ == Precision::fp8) return run_fp8();
    for (std::size_t l = 0; l + 1 < neurons_.size(); ++l) {
      // Not into the activations, which would be no longer behind a ReLU.
      EGT_TRY(device_->gemm({.precision = precision_,
                             .a = activations_[l].view,
                             .b = weights_[l].view,
                             .d = differences_[l + 1].view,
                             .b_transposed = true},
                            *stream_));
    }
    for (std::size_t l = neurons_.size() - 1; l-- > 0;) {
      if (l > 0)
        EGT_TRY(device_->gemm({.precision = precision_,
                               .a = differences_[l + 1].view,
                               .b = weights_[l].view,
                               .d = differences_[l].view},
                              *stream_));
      EGT_TRY(device_->gemm({.precision = precision_,
                             .a = differences_[l + 1].view,
                             .b = activations_[l].view,
                             .d = gradients_[l].view,
                             .a_transposed = true},
                            *stream_));
    }
    return {};
  }

  Result<double> block_ms(int steps) {
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) EGT_TRY(run());
    EGT_TRY(device_->synchronize(*stream_, timeout_s));
    return seconds_since(start) * 1e3 / steps;
  }

 private:
  Products(Device& device, std::vector<std::int64_t> neurons, std::int64_t batch, Precision precision)
      : device_(&device), neurons_(std::move(neurons)), batch_(batch), precision_(precision) {}

  struct Matrix {
    Buffer buffer;
    MatrixView view;
  };
  /// Of 8 bits, and its transpose.
  struct Quantized {
    Buffer memory, scale;
    MatrixView copy, transposed;
  };

  /// As the trainer's: weights and activations e4m3, gradients e5m2.
  Status quantize() {
    const auto add = [&](std::vector<Quantized>& all, const Matrix& of, ElementType type) -> Status {
      const MatrixView& x = of.view;
      Quantized& made = all.emplace_back();
      EGT_TRY_ASSIGN(made.memory, device_->allocate(2 * static_cast<std::size_t>(x.count())));
      EGT_TRY_ASSIGN(made.scale, device_->allocate(sizeof(float)));
      made.copy = {made.memory.data(), type, x.rows, x.columns};
      made.transposed = {made.memory.as<char>() + x.count(), type, x.columns, x.rows};
      return device_->quantize(
          {.x = x, .copy = made.copy, .transposed = made.transposed, .scale = made.scale.as<float>()},
          *stream_);
    };
    for (const Matrix& one : activations_) EGT_TRY(add(quantized_activations_, one, ElementType::f8));
    for (const Matrix& one : differences_) EGT_TRY(add(quantized_differences_, one, ElementType::f8_e5m2));
    for (const Matrix& one : weights_) EGT_TRY(add(quantized_weights_, one, ElementType::f8));
    return device_->synchronize(*stream_, timeout_s);
  }

  Status multiply(const MatrixView& a, const Quantized& of_a, const MatrixView& b, const Quantized& of_b,
                  const MatrixView& d) {
    return device_->gemm({.precision = Precision::fp8,
                          .a = a,
                          .b = b,
                          .d = d,
                          .b_transposed = true,
                          .a_scale = of_a.scale.as<float>(),
                          .b_scale = of_b.scale.as<float>()},
                         *stream_);
  }

  Status run_fp8() {
    for (std::size_t l = 0; l + 1 < neurons_.size(); ++l) {
      const Quantized &x = quantized_activations_[l], &w = quantized_weights_[l];
      EGT_TRY(multiply(x.copy, x, w.copy, w, differences_[l + 1].view));
    }
    for (std::size_t l = neurons_.size() - 1; l-- > 0;) {
      const Quantized &x = quantized_activations_[l], &w = quantized_weights_[l],
                      &g = quantized_differences_[l + 1];
      if (l > 0) EGT_TRY(multiply(g.copy, g, w.transposed, w, differences_[l].view));
      EGT_TRY(multiply(g.transposed, g, x.transposed, x, gradients_[l].view));
    }
    return {};
  }

  Status add(std::vector<Matrix>& matrices, ElementType type, std::int64_t rows, std::int64_t columns) {
    EGT_TRY_ASSIGN(Buffer buffer,
                   device_->allocate(static_cast<std::size_t>(rows * columns) * size_of(type)));
    EGT_TRY(device_->randomize({buffer.data(), type, rows * columns},
                               {.seed = 1, .sequence = matrices.size(), .first = 0, .scale = 0.1f},
                               *stream_));
    const MatrixView view{buffer.data(), type, rows, columns};
    matrices.push_back({std::move(buffer), view});
    return {};
  }
  Status rectify() {
    const auto widest = static_cast<std::size_t>(*std::max_element(neurons_.begin(), neurons_.end()));
    EGT_TRY_ASSIGN(const Buffer bias, device_->allocate(widest * sizeof(float)));
    EGT_TRY(device_->set_zero(bias.data(), bias.bytes(), *stream_));
    for (std::size_t l = 1; l < activations_.size(); ++l)
      EGT_TRY(device_->activate(activations_[l].view, static_cast<const float*>(bias.data()), {}, *stream_));
    return device_->synchronize(*stream_, timeout_s);
  }

  Device* device_;
  std::vector<std::int64_t> neurons_;
  std::int64_t batch_;
  Precision precision_;
  std::unique_ptr<Stream> stream_;
  std::vector<Matrix> activations_, differences_, weights_, gradients_;  ///< of each layer
  std::vector<Quantized> quantized_activations_, quantized_differences_, quantized_weights_;
};

class Steps {
 public:
  explicit Steps(MlpTrainer& trainer) : trainer_(trainer) {}

  Result<double> block_ms(int steps) {
    const auto start = Clock::now();
    const std::int64_t first = next_;
    for (; next_ < first + steps; ++next_) {
      EGT_TRY(trainer_.enqueue_step(next_, {}, false));
      if (next_ - first >= MlpTrainer::depth)
        EGT_TRY(trainer_.retire_step(next_ - MlpTrainer::depth, timeout_s).status());
    }
    for (std::int64_t s = std::max(first, next_ - MlpTrainer::depth); s < next_; ++s)
      EGT_TRY(trainer_.retire_step(s, timeout_s).status());
    return seconds_since(start) * 1e3 / steps;
  }

 private:
  MlpTrainer& trainer_;
  std::int64_t next_ = 0;
};

Status measure(Device& device, Communicator& communicator, Control& control, const Arguments& arguments,
               std::int64_t batch, Precision precision) {
  const std::int64_t global = batch * communicator.size();
  EGT_TRY_ASSIGN(const auto trainer,
                 MlpTrainer::create(
                     device, communicator,
                     {.neurons = arguments.layers,
                      .batch = {.global = global, .first = batch * communicator.rank(), .local = batch},
                      .precisions = {precision},
                      .learning_rate = default_learning_rate(arguments.layers, Optimizer::sgd, global),
                      .momentum = arguments.momentum,
                      .gradient_type = arguments.gradient == "bf16" ? ElementType::bf16 : ElementType::f32,
                      .extreme_iterations = 0,
                      .seed = 1}));
  EGT_TRY_ASSIGN(Products products, Products::make(device, arguments, batch, precision));
  Steps steps(*trainer);
  EGT_TRY(steps.block_ms(15).status());
  EGT_TRY(products.block_ms(5).status());
  std::vector<double> step_ms, products_ms;
  for (int block = 0; block < arguments.blocks; ++block) {
    EGT_TRY(control.barrier());
    EGT_TRY_ASSIGN(const double whole, steps.block_ms(arguments.steps));
    EGT_TRY(control.barrier());
    EGT_TRY_ASSIGN(const double bare, products.block_ms(arguments.steps));
    step_ms.push_back(whole);
    products_ms.push_back(bare);
  }
  if (communicator.rank() != 0) return {};
  const double whole = median(step_ms), bare = median(products_ms);
  fmt::print(
      "EGT mode={} ranks={} batch_per_rank={} step_ms={:.3f} products_ms={:.3f} ratio={:.3f} "
      "tflops_per_rank={:.2f} samples_per_s={:.0f}\n",
      to_string(precision), communicator.size(), batch, whole, bare, whole / bare,
      flops_per_sample(arguments.layers) * static_cast<double>(batch) / whole / 1e9,
      static_cast<double>(global) / whole * 1e3);
  std::fflush(stdout);
  return {};
}

Status run(MpiSession& mpi, Control& control, Arguments arguments) {
  CommonOptions common;
  common.backend = arguments.backend == "cuda"   ? Backend::cuda
                   : arguments.backend == "host" ? Backend::host
                                                 : Backend::automatic;
  EGT_TRY_ASSIGN(const BackendChoice choice, choose_backend(common));
  const bool host = choice.backend == Backend::host;
  if (arguments.layers.empty())
    arguments.layers = host ? std::vector<std::int64_t>{512, 1024, 768, 512, 256, 128, 64}
                            : std::vector<std::int64_t>{4096, 8192, 6144, 4096, 2048, 1024, 512};
  if (arguments.batches.empty())
    arguments.batches = host ? std::vector<std::int64_t>{512} : std::vector<std::int64_t>{1024, 8192};
  if (arguments.precisions.empty())
    arguments.precisions = host ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"tf32", "bf16"};
  EGT_TRY_ASSIGN(const auto device, open_device(choice.backend, common, control.place()));
  EGT_TRY_ASSIGN(const auto communicator, open_communicator(choice.backend, mpi, control, timeout_s));
  for (const std::string& name : arguments.precisions) {
    const auto precision = parse_precision(name);
    if (!precision) return Status(StatusCode::invalid_argument, "no such precision: " + name);
    for (const std::int64_t batch : arguments.batches)
      EGT_TRY(measure(*device, *communicator, control, arguments, batch, *precision));
  }
  return {};
}

int main_of(int argc, char** argv) {
  auto mpi = MpiSession::open(argc, argv);
  Arguments arguments;
  CLI::App app{"The train step beside its bare matrix products"};
  app.add_option("--backend", arguments.backend)->check(CLI::IsMember({"auto", "cuda", "host"}));
  app.add_option("--layers", arguments.layers)->delimiter(',');
  app.add_option("--batches", arguments.batches)->delimiter(',');
  app.add_option("--precisions", arguments.precisions)->delimiter(',');
  app.add_option("--gradient-dtype", arguments.gradient)->check(CLI::IsMember({"fp32", "bf16"}));
  app.add_option("--momentum", arguments.momentum, "0 keeps no velocity, as the PyTorch side's SGD")
      ->check(CLI::Range(0.0f, 1.0f));
  app.add_option("--steps", arguments.steps)->check(CLI::PositiveNumber);
  app.add_option("--blocks", arguments.blocks)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (!mpi.ok()) return fmt::print(stderr, "{}\n", mpi.status().what()), 3;
  auto control = open_mpi_control(*mpi.value(), timeout_s);
  if (!control.ok()) return fmt::print(stderr, "{}\n", control.status().what()), 3;
  const Status status = run(*mpi.value(), *control.value(), arguments);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.what());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace egt

int main(int argc, char** argv) {
  return egt::main_of(argc, argv);
}
