#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/types.hpp"
#include "egt/core/units.hpp"
#include "model/mlp_trainer.hpp"

/// Options of each part of the main job. Defaults suit a GPU; `command/options` sets those of the host
/// backend.
namespace egt {

/// Load on a device: the verified mix of all parts with the highest power, or training alone.
enum class LoadKind { mix, train };

/// Split of a step's samples over the ranks: even, or speed-weighted.
enum class Balance { even, automatic };

/// Verification of training: every forward/backward pass is computed a second time on another device, or a
/// known-answer pass runs at intervals.
enum class Coverage { full, sampled };

struct TrainOptions {
  LoadKind load = LoadKind::mix;  ///< of the whole job; reported with its results
  std::vector<std::int64_t> layers = {4096, 8192, 6144, 4096,
                                      2048, 1024, 512};  ///< neurons, input first; at least 2
  std::int64_t batch = 1024;                             ///< samples per rank and step
  Balance balance = Balance::even;
  std::vector<Precision> precisions;  ///< used in turn, one epoch each; at least 1
  Optimizer optimizer = Optimizer::sgd;
  std::optional<double> learning_rate;           ///< unset: derived from layers
  ElementType gradient_type = ElementType::f32;  ///< f32 or bf16
  int extreme_iterations = 200;
  std::int64_t epoch_steps = 50;  ///< steps per epoch
  std::int64_t check_every = 0;   ///< steps between checks; 0: as often as check_budget permits
  Coverage coverage = Coverage::full;
  double check_budget = 0.01;  ///< share of the steps' time for checks, in (0, 1]
  std::string golden;          ///< path of the known-answer file, created if missing; empty: none

  bool covers_all() const { return coverage == Coverage::full; }
};

struct CollectiveOptions {
  std::int64_t every = 50;             ///< steps between known-answer rounds
  std::uint64_t elements = 16u << 20;  ///< fp32 elements per round
};

struct MemoryOptions {
  SizeOrShare fill{.share = 0.9,
                   .bytes = 0,
                   .is_share = true};  ///< of the device total, counting all memory of the program
  double limit = 0.95;                 ///< max share of device memory in use, for any `fill`
  int buffer_iterations = 300;         ///< sine and exponential iterations
  double starvation_seconds = 10;      ///< seconds; window of the check for starved memory tests
};

struct FileOptions {
  bool enabled = true;
  std::string directory = ".";
  std::uint64_t size = 10'000'000'000;                    ///< bytes per cycle
  int repeats = 50;                                       ///< write-and-read-back passes per cycle
  std::int64_t every = 10;                                ///< steps between the starts of two cycles
  std::optional<std::uint64_t> budget = 100'000'000'000;  ///< bytes written per rank and run; unset: no limit
  double rate_seconds = 0.02;  ///< seconds of the standalone file benchmark; 0: none
};

struct LinksOptions {
  std::uint64_t size = 1'000'000'000;  ///< max bytes per transfer
  int repeats = 10;                    ///< per measurement
  double warn_below = 20e9;            ///< bit/s per pair, one way; 0: no absolute threshold
};

/// Cooperation of the `loadtest` ranks: none, each rank with the same data, or gradient all-reduce, each rank
/// with its own data.
enum class LoadTestMode { independent, ddp };

struct LoadTestOptions {
  std::int64_t epochs = 3;
  std::int64_t batches = 200;  ///< per epoch
  int workers = 0;             ///< CPU threads that generate images; 0: the device generates them
  std::string data;            ///< image folder; empty: images are generated
  bool quick = false;
  LoadTestMode mode = LoadTestMode::ddp;
  std::int64_t pixels = 224;  ///< side length of an image
};

/// Options of `verify` beyond the main job: known-answer operations that training does not contain.
struct ReadinessOptions {
  std::int64_t every = 20;  ///< steps between rounds, at least 3
  std::int64_t samples = 1024, inputs = 2048, hidden = 2048, outputs = 512;  ///< of the encoding network
  std::int64_t updated = 1 << 16;  ///< parameters in the optimizers' known-answer tests
  double cleanup_share = 0.01;  ///< share of device memory, allocated and freed at the start and at the end
};

}  // namespace egt
