#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/types.hpp"

/// What `bench` measures: how work scales from one device to all.
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
  hetero,      ///< one load for all devices, shared by what each can do alone
  strong,      ///< of mlp: one device's batch for all, in equal shares; gradients by the communicator
  compressed,  ///< of mlp: as collective, with --gradient-compression
  // Of --parallel
  tensor,    ///< of mlp: each layer divided among devices
  pipeline,  ///< of mlp: runs of layers on one device each
  task,      ///< parts of the work on one device each
};
constexpr std::string_view to_string(BenchMode mode) {
  constexpr std::string_view names[] = {"single",     "p2p",    "collective", "hetero", "strong",
                                        "compressed", "tensor", "pipeline",   "task"};
  return names[static_cast<int>(mode)];
}

/// How ranks send their gradients to each other.
struct GradientCompression {
  ElementType type = ElementType::f32;  ///< bf16: rounded to it before the sum, as by --gradient-dtype
  double top_k_share = 0;               ///< MlpConfig::top_k_share

  bool is_on() const { return type != ElementType::f32 || top_k_share > 0; }
};
/// "none", "bf16" or "topk:1%", as the option has it.
std::string to_string(const GradientCompression& compression);
/// Empty: it is none of these.
std::optional<GradientCompression> parse_compression(std::string_view text);

/// What the devices divide among them; `data`: what BenchOptions::modes say.
enum class Parallel { data, tensor, pipeline, task, all };

/// Where the streams that `multimodal` fuses come into being.
enum class StreamOrigin {
  own,    ///< on the device that fuses them; the first device's clock gives all the timeline
  first,  ///< on the first device, as the timeline
};
constexpr std::string_view to_string(StreamOrigin origin) {
  constexpr std::string_view names[] = {"own", "first"};
  return names[static_cast<int>(origin)];
}

/// Defaults are those of a GPU; `command/options` puts the host backend's.
struct BenchOptions {
  bool ceilings = false;  ///< every part beside the machine's limit, instead of scaling
  std::vector<BenchWorkload> workloads = {BenchWorkload::mlp, BenchWorkload::multimodal,
                                          BenchWorkload::voxelize};
  /// `single` is always measured: the others are compared with it.
  std::vector<BenchMode> modes = {BenchMode::single, BenchMode::p2p, BenchMode::collective, BenchMode::hetero,
                                  BenchMode::strong};
  std::vector<std::int64_t> points = {10'000, 100'000, 1'000'000, 10'000'000};  ///< of a device's cloud
  std::int32_t grid = 256;                                                      ///< voxels along each axis
  std::vector<std::int64_t> batches = {1, 8, 32, 128, 256};                     ///< of multimodal, a device
  StreamOrigin streams = StreamOrigin::own;
  double trial_seconds = 1;  ///< that a trial is measured, after its warm-up
  GradientCompression compression;
  std::int64_t compared_steps = 500;  ///< after which the losses with and without compression are compared
  Parallel parallel = Parallel::data;
  /// Of a step, through a pipeline; none: micro_batches_a_stage for each stage.
  std::optional<int> micro_batches;
  std::optional<std::uint64_t> most_state_bytes;  ///< of mlp's on a device; none: what there is room for

  bool measures(Parallel kind) const { return parallel == kind || parallel == Parallel::all; }
};

}  // namespace egt
