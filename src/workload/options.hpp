#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/types.hpp"
#include "egt/core/units.hpp"
#include "model/mlp_trainer.hpp"

/// What each part of the main job is asked to do. Defaults are those of a GPU; `command/options` puts the
/// host backend's.
namespace egt {

/// What the main job puts on a device: the hottest verified mix of all parts, or the network alone.
enum class LoadKind { mix, train };

/// How the ranks share the samples of a step: evenly, or by what their devices compute in the same time.
enum class Balance { even, automatic };

/// How much of training's passes is compared: every one, with a second one of its batch on another device, or
/// a known-answer pass now and then.
enum class Coverage { full, sampled };

struct TrainOptions {
  LoadKind load = LoadKind::mix;  ///< of the whole job: told with its results
  std::vector<std::int64_t> layers = {4096, 8192, 6144, 4096,
                                      2048, 1024, 512};  ///< neurons, input first; at least 2
  std::int64_t batch = 1024;                             ///< samples a rank and step
  Balance balance = Balance::even;
  std::vector<Precision> precisions;  ///< in turn, an epoch each; at least 1
  Optimizer optimizer = Optimizer::sgd;
  std::optional<double> learning_rate;           ///< none: chosen from the layers
  ElementType gradient_type = ElementType::f32;  ///< f32 or bf16
  int extreme_iterations = 200;
  std::int64_t epoch_steps = 50;  ///< steps an epoch
  std::int64_t check_every = 0;   ///< steps between checks; 0: as often as check_budget allows
  Coverage coverage = Coverage::full;
  double check_budget = 0.01;  ///< share of the time that checks may take, above 0 and up to 1
  std::string golden;          ///< the file of known answers, written where it is not there; empty: none

  bool covers_all() const { return coverage == Coverage::full; }
};

struct CollectiveOptions {
  std::int64_t every = 50;             ///< steps between known-answer rounds
  std::uint64_t elements = 16u << 20;  ///< fp32 a round
};

struct MemoryOptions {
  SizeOrShare fill{.share = 0.9,
                   .bytes = 0,
                   .is_share = true};  ///< of the device's total, all of the program's memory counted
  double limit = 0.95;                 ///< share of the device's memory in use that no fill may lead to
  int buffer_iterations = 300;         ///< turns of sine and exponential
  double starvation_seconds = 10;      ///< over which a GPU's memory must have been verified at all
};

struct FileOptions {
  bool enabled = true;
  std::string directory = ".";
  std::uint64_t size = 10'000'000'000;                    ///< bytes a cycle
  int repeats = 50;                                       ///< write-and-read-back passes a cycle
  std::int64_t every = 10;                                ///< steps between cycles' starts
  std::optional<std::uint64_t> budget = 100'000'000'000;  ///< bytes written a rank and run; none: unlimited
  double rate_seconds = 0.02;  ///< for which the files are written to measure their rate alone; 0: not at all
};

struct LinksOptions {
  std::uint64_t size = 1'000'000'000;  ///< bytes of the largest transfer
  int repeats = 10;                    ///< of every measurement
  double warn_below = 20e9;            ///< bits a second of a pair, one way; 0: nothing is too slow by itself
};

/// What the ranks of `loadtest` do together: nothing, each with the same data, or sum their gradients, each
/// with data of its own.
enum class LoadTestMode { independent, ddp };

struct LoadTestOptions {
  std::int64_t epochs = 3;
  std::int64_t batches = 200;  ///< an epoch
  int workers = 0;             ///< threads that make images; 0: the device makes them
  std::string data;            ///< a folder of images; empty: they are generated
  bool quick = false;
  LoadTestMode mode = LoadTestMode::ddp;
  std::int64_t pixels = 224;  ///< of an image's side
};

/// What `verify` does beside the main job: operations of known answers that training alone lacks.
struct ReadinessOptions {
  std::int64_t every = 20;  ///< steps between rounds, at least 3
  std::int64_t samples = 1024, inputs = 2048, hidden = 2048, outputs = 512;  ///< of the encoding network
  std::int64_t updated = 1 << 16;  ///< parameters of the optimizers' known answers
  double cleanup_share = 0.01;  ///< of the device's memory, taken and given back at the start and at the end
};

}  // namespace egt
