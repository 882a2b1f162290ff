#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/types.hpp"

/// Options of `bench`, which measures how work scales from one device to all.
namespace egt {

enum class BenchWorkload { mlp, multimodal, voxelize };
constexpr std::string_view to_string(BenchWorkload workload) {
  constexpr std::string_view names[] = {"mlp", "multimodal", "voxelize"};
  return names[static_cast<int>(workload)];
}

enum class BenchMode {
  single,      ///< each device alone, one after the other
  p2p,         ///< data moved by copies into the peers' memory
  collective,  ///< data moved by the communicator: NCCL or MPI
  hetero,      ///< one load for all devices, weighted by standalone speed
  strong,      ///< for mlp: one device's batch divided equally; gradients by the communicator
  compressed,  ///< for mlp: collective with --gradient-compression
  // For --parallel.
  tensor,    ///< for mlp: each layer divided among devices
  pipeline,  ///< for mlp: consecutive layers on one device each
  task,      ///< parts of the work on one device each
};
constexpr std::string_view to_string(BenchMode mode) {
  constexpr std::string_view names[] = {"single",     "p2p",    "collective", "hetero", "strong",
                                        "compressed", "tensor", "pipeline",   "task"};
  return names[static_cast<int>(mode)];
}

/// How ranks exchange their gradients.
struct GradientCompression {
  ElementType type = ElementType::f32;  ///< bf16: rounded before the all-reduce, as with --gradient-dtype
  double top_k_share = 0;               ///< MlpConfig::top_k_share

  bool is_on() const { return type != ElementType::f32 || top_k_share > 0; }
};
/// "none", "bf16" or "topk:1%", in the option's syntax.
std::string to_string(const GradientCompression& compression);
/// Empty if the text is none of these.
std::optional<GradientCompression> parse_compression(std::string_view text);

/// How work is divided among devices; `data`: according to BenchOptions::modes.
enum class Parallel { data, tensor, pipeline, task, all };

/// The device that generates the streams for `multimodal`.
enum class StreamOrigin {
  own,    ///< on the fusing device; the first device's clock provides the timeline for all
  first,  ///< on the first device, with the timeline
};
constexpr std::string_view to_string(StreamOrigin origin) {
  constexpr std::string_view names[] = {"own", "first"};
  return names[static_cast<int>(origin)];
}

/// Defaults are for a GPU; `command/options` sets those of the host backend.
struct BenchOptions {
  bool ceilings = false;  ///< compare every part with the hardware limit instead of scaling
  std::vector<BenchWorkload> workloads = {BenchWorkload::mlp, BenchWorkload::multimodal,
                                          BenchWorkload::voxelize};
  /// `single` always runs, because the other modes are compared with it.
  std::vector<BenchMode> modes = {BenchMode::single, BenchMode::p2p, BenchMode::collective, BenchMode::hetero,
                                  BenchMode::strong};
  std::vector<std::int64_t> points = {10'000, 100'000, 1'000'000, 10'000'000};  ///< points per device
  std::int32_t grid = 256;                                                      ///< voxels along each axis
  std::vector<std::int64_t> batches = {1, 8, 32, 128, 256};                     ///< of multimodal, per device
  StreamOrigin streams = StreamOrigin::own;
  double trial_seconds = 1;  ///< measurement time per trial after its warm-up
  GradientCompression compression;
  std::int64_t compared_steps = 500;  ///< steps before losses with/without compression are compared
  Parallel parallel = Parallel::data;
  /// Micro-batches per step through a pipeline; none: micro_batches_a_stage per stage.
  std::optional<int> micro_batches;
  std::optional<std::uint64_t> max_state_bytes;  ///< of mlp per device; none: limited by memory

  bool measures(Parallel kind) const { return parallel == kind || parallel == Parallel::all; }
};

}  // namespace egt
