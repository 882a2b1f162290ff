// The training step compared with its bare GEMMs, alternating in one run.
//
// mpirun -np 2 build/egt_bench_train_step --backend host
// mpirun -np 4 build/egt_bench_train_step --backend cuda --precisions tf32,bf16 --batches 1024,8192
//
// Prints one line per case: milliseconds per step (median of the blocks) and of its GEMMs alone, their ratio,
// TFLOP/s per device, samples/s of all ranks.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "command/platform.hpp"
#include "egt/core/clock.hpp"
#include "model/mlp_trainer.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/mpi/mpi_session.hpp"
#include "ranks/peer/peer_communicator.hpp"
#include "workload/ceilings/step_products.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 300;

struct Arguments {
  std::string backend = "auto";
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> batches;
  std::vector<std::string> precisions;
  std::string gradient = "fp32";
  std::string sums = "library";
  float momentum = 0.0f;
  int steps = 40;
  int blocks = 5;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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
  EGT_TRY_ASSIGN(const StepGemms products, StepGemms::make(device, arguments.layers, batch, precision));
  EGT_TRY_ASSIGN(const auto stream, device.create_stream(StreamPriority::normal));
  const auto products_ms = [&](int steps) -> Result<double> {
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) EGT_TRY(products.enqueue_all(*stream));
    EGT_TRY(device.synchronize(*stream, timeout_s));
    return seconds_since(start) * 1e3 / steps;
  };
  Steps steps(*trainer);
  EGT_TRY(steps.block_ms(15).status());
  EGT_TRY(products_ms(5).status());
  std::vector<double> step_ms, bare_ms;
  for (int block = 0; block < arguments.blocks; ++block) {
    EGT_TRY(control.barrier());
    EGT_TRY_ASSIGN(const double whole, steps.block_ms(arguments.steps));
    EGT_TRY(control.barrier());
    EGT_TRY_ASSIGN(const double bare, products_ms(arguments.steps));
    step_ms.push_back(whole);
    bare_ms.push_back(bare);
  }
  if (communicator.rank() != 0) return {};
  const double whole = median(step_ms), bare = median(bare_ms);
  fmt::print(
      "EGT mode={} gradients={} sums={} ranks={} batch_per_rank={} step_ms={:.3f} products_ms={:.3f} "
      "ratio={:.3f} "
      "tflops_per_rank={:.2f} samples_per_s={:.0f}\n",
      to_string(precision), arguments.gradient, arguments.sums, communicator.size(), batch, whole, bare,
      whole / bare, flops_per_sample(arguments.layers) * static_cast<double>(batch) / whole / 1e9,
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
    arguments.precisions =
        host ? std::vector<std::string>{"fp32"} : std::vector<std::string>{"tf32", "bf16", "fp8"};
  EGT_TRY_ASSIGN(const auto device, open_device(choice.backend, common, control.place()));
  EGT_TRY_ASSIGN(auto communicator, open_communicator(choice.backend, mpi, control, timeout_s));
  if (arguments.sums == "peers") {
    std::vector<int> ranks(static_cast<std::size_t>(communicator->size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    EGT_TRY_ASSIGN(communicator, open_peer_communicator(*device, control, std::move(communicator), ranks));
  }
  for (const std::string& name : arguments.precisions) {
    const auto precision = parse_precision(name);
    if (!precision) return Status(StatusCode::invalid_argument, "no such precision: " + name);
    if (const Support support = supports_training(*device, *precision); !support.yes()) {
      if (control.place().rank == 0) fmt::print("{}: {}\n", name, support.why_not);
      continue;
    }
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
  app.add_option("--sums", arguments.sums, "NCCL's or MPI's, or peer copies")
      ->check(CLI::IsMember({"library", "peers"}));
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
