#include <algorithm>
#include <array>
#include <utility>

#include "egt/core/pattern.hpp"
#include "workload/bench/bench_operation.hpp"

namespace egt {
namespace {

/// Byte offsets of the parts of a batch: the timeline first, then each stream's times and values.
struct BatchLayout {
  explicit BatchLayout(const FusionShape& shape) {
    const auto place = [this](std::int64_t elements, std::size_t width) {
      const std::size_t begin = bytes;
      bytes += aligned_input(static_cast<std::size_t>(elements) * width);
      return begin;
    };
    place(shape.batch * shape.steps, sizeof(double));
    for (int s = 0; s < shape.streams; ++s) {
      times[s] = place(shape.batch * shape.samples[s], sizeof(double));
      values[s] = place(shape.batch * shape.samples[s] * shape.dims[s], sizeof(float));
    }
  }

  std::size_t bytes = 0;
  std::array<std::size_t, max_fusion_streams> times{}, values{};
};

/// A number in [0, 1) that depends on all arguments.
double unit(std::uint64_t seed, std::uint64_t purpose, std::uint64_t index) {
  constexpr double two_to_53 = 9007199254740992.0;
  const std::uint64_t word = mix64(mix64(seed + purpose * 0x9E3779B97F4A7C15ull) + index);
  return static_cast<double>(word >> 11) / two_to_53;
}

/// Writes rows of rising times, one per period, each within the middle half of its period.
void write_times(double* times, std::int64_t rows, std::int64_t samples, double hz, std::uint64_t seed,
                 std::uint64_t purpose) {
  for (std::int64_t i = 0; i < rows * samples; ++i) {
    const double jitter = 0.25 + 0.5 * unit(seed, purpose, static_cast<std::uint64_t>(i));
    times[i] = (static_cast<double>(i % samples) + jitter) / hz;
  }
}

/// Sensor streams of robots, as in stream_fusion.hpp. The input has the timeline. It also has the streams,
/// unless they belong to this device (StreamOrigin::own).
class Multimodal final : public BenchOperation {
 public:
  Multimodal(Device& device, std::uint64_t seed, StreamOrigin origin, const BatchItems& samples)
      : device_(device),
        seed_(seed),
        origin_(origin),
        shape_(standard_fusion_shape(samples.own)),
        most_(standard_fusion_shape(samples.most)),
        layout_(most_) {}

  Status prepare();

  Status make_input(int generation, std::byte* input, Stream& stream) override;
  Status enqueue(int generation, const std::byte* input, Stream& stream) override;

  std::vector<Output> outputs() const override {
    return {{"fused values", &fused_}, {"dropped samples", &dropped_}};
  }
  std::uint64_t necessary_bytes() const override { return fusion_bytes(shape_); }

 private:
  Status write_doubles(std::byte* to, std::int64_t samples, double hz, std::uint64_t purpose, Stream& stream);
  Status make_streams(int generation, std::byte* batch, Stream& stream);
  /// Start of a generation in streams_, as if the timeline preceded its streams as in an input.
  const std::byte* own_batch(int generation) const {
    return streams_.as<std::byte>() + static_cast<std::size_t>(generation) * layout_.bytes;
  }
  /// Each stream and generation has its own random sequence.
  static std::uint64_t purpose_of(int stream, int generation) {
    constexpr std::uint64_t above_those_of_points = std::uint64_t{1} << 32;
    return above_those_of_points + static_cast<std::uint64_t>((stream + 1) * generations + generation);
  }

  Device& device_;
  const std::uint64_t seed_;
  const StreamOrigin origin_;
  const FusionShape shape_, most_;
  const BatchLayout layout_;
  Buffer streams_;  ///< of all generations, if they belong to this device
  Buffer fused_, dropped_, scratch_, pinned_;
};

Status Multimodal::prepare() {
  const auto rows = static_cast<std::size_t>(shape_.batch);
  const std::size_t fused = rows * static_cast<std::size_t>(shape_.steps * shape_.total_dims());
  EGT_TRY_ASSIGN(fused_, device_.allocate(fused * sizeof(float)));
  EGT_TRY_ASSIGN(dropped_, device_.allocate(rows * standard_fusion_streams * sizeof(std::uint32_t)));
  EGT_TRY_ASSIGN(scratch_, device_.allocate(fusion_scratch_bytes(shape_)));
  std::int64_t longest = most_.steps;
  for (int s = 0; s < most_.streams; ++s) longest = std::max(longest, most_.samples[s]);
  EGT_TRY_ASSIGN(pinned_,
                 device_.allocate_pinned(static_cast<std::size_t>(most_.batch * longest) * sizeof(double)));
  if (origin_ != StreamOrigin::own) return {};
  EGT_TRY_ASSIGN(streams_, device_.allocate(generations * layout_.bytes));
  EGT_TRY_ASSIGN(const auto stream,
                 device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  for (int g = 0; g < generations; ++g)
    EGT_TRY(make_streams(g, streams_.as<std::byte>() + static_cast<std::size_t>(g) * layout_.bytes, *stream));
  return device_.synchronize(*stream, ready_seconds);
}

/// Blocks, because the pinned memory is reused.
Status Multimodal::write_doubles(std::byte* to, std::int64_t samples, double hz, std::uint64_t purpose,
                                 Stream& stream) {
  write_times(pinned_.as<double>(), most_.batch, samples, hz, seed_, purpose);
  EGT_TRY(device_.copy(to, pinned_.data(), static_cast<std::size_t>(most_.batch * samples) * sizeof(double),
                       stream));
  return device_.synchronize(stream, ready_seconds);
}

Status Multimodal::make_streams(int generation, std::byte* batch, Stream& stream) {
  for (int s = 0; s < most_.streams; ++s) {
    const auto i = static_cast<std::size_t>(s);
    EGT_TRY(write_doubles(batch + layout_.times[i], most_.samples[s], standard_fusion_rates_hz[s],
                          purpose_of(s, generation), stream));
    EGT_TRY(device_.randomize(
        {batch + layout_.values[i], ElementType::f32, most_.batch * most_.samples[s] * most_.dims[s]},
        {.seed = seed_, .sequence = purpose_of(s, generation)}, stream));
  }
  return {};
}

Status Multimodal::make_input(int generation, std::byte* input, Stream& stream) {
  constexpr int timeline = -1;
  EGT_TRY(write_doubles(input, most_.steps, standard_fusion_timeline_hz, purpose_of(timeline, generation),
                        stream));
  return origin_ == StreamOrigin::first ? make_streams(generation, input, stream) : Status();
}

Status Multimodal::enqueue(int generation, const std::byte* input, Stream& stream) {
  const std::byte* const batch = origin_ == StreamOrigin::own ? own_batch(generation) : input;
  StreamFusion call;
  call.shape = shape_;
  for (int s = 0; s < shape_.streams; ++s) {
    const auto i = static_cast<std::size_t>(s);
    call.times[s] = reinterpret_cast<const double*>(batch + layout_.times[i]);
    call.values[s] = reinterpret_cast<const float*>(batch + layout_.values[i]);
  }
  call.timeline = reinterpret_cast<const double*>(input);
  call.fused = fused_.as<float>();
  call.dropped = dropped_.as<std::uint32_t>();
  call.scratch = scratch_.data();
  call.scratch_bytes = scratch_.bytes();
  return device_.fuse(call, stream);
}

}  // namespace

std::size_t multimodal_input_bytes(std::int64_t items, StreamOrigin origin) {
  const FusionShape shape = standard_fusion_shape(items);
  return origin == StreamOrigin::own ? static_cast<std::size_t>(items * shape.steps) * sizeof(double)
                                     : BatchLayout(shape).bytes;
}

Result<std::unique_ptr<BenchOperation>> make_multimodal(Device& device, std::uint64_t seed,
                                                        StreamOrigin origin, const BatchItems& samples) {
  auto made = std::make_unique<Multimodal>(device, seed, origin, samples);
  EGT_TRY(made->prepare());
  return std::unique_ptr<BenchOperation>(std::move(made));
}

}  // namespace egt
