#include "workload/bench/parallel/fused_input.hpp"

#include "egt/core/histogram.hpp"

namespace egt {
namespace {

constexpr int measurements = 3;

}  // namespace

Result<std::unique_ptr<FusedInput>> FusedInput::create(Device& device, std::uint64_t seed,
                                                       const MlpConfig& network) {
  const FusionShape one = standard_fusion_shape(1);
  const std::int64_t values = network.batch.global * network.neurons.front(),
                     values_of_a_robot = one.steps * one.total_dims(),
                     robots = (values + values_of_a_robot - 1) / values_of_a_robot;
  EGT_TRY_ASSIGN(auto fusion, make_multimodal(device, seed, StreamOrigin::own, {robots, robots}));
  std::unique_ptr<FusedInput> made(new FusedInput(device, std::move(fusion)));
  EGT_TRY_ASSIGN(const auto stream,
                 device.create_stream(StreamPriority::normal, StreamUse::without_products));
  for (int g = 0; g < BenchOperation::generations; ++g) {
    EGT_TRY_ASSIGN(Buffer timeline, device.allocate(multimodal_input_bytes(robots, StreamOrigin::own)));
    made->timelines_.push_back(std::move(timeline));
    EGT_TRY(made->fusion_->make_input(g, made->timelines_.back().as<std::byte>(), *stream));
  }
  EGT_TRY(device.synchronize(*stream, ready_seconds));
  return made;
}

Status FusedInput::fuse(std::uint64_t sequence, Stream& stream) {
  const auto generation = static_cast<std::size_t>(sequence % BenchOperation::generations);
  return fusion_->enqueue(static_cast<int>(generation), timelines_[generation].as<std::byte>(), stream);
}

Status FusedInput::make(std::uint64_t sequence, std::int64_t first_sample, MatrixView input, Stream& stream) {
  if (fused_ != sequence) EGT_TRY(fuse(sequence, stream));
  fused_ = sequence;
  float* const values = fusion_->outputs().front().memory->as<float>() + first_sample * input.columns;
  if (input.type == ElementType::f32)
    return device_.copy(input.data, values, static_cast<std::size_t>(input.count()) * sizeof(float), stream);
  return device_.cast({input.data, input.type, input.count()}, {values, ElementType::f32, input.count()},
                      stream);
}

Result<double> FusedInput::measure(double timeout_seconds) {
  EGT_TRY_ASSIGN(const auto begin, device_.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(const auto end, device_.create_event(EventUse::timing));
  EGT_TRY_ASSIGN(const auto stream, device_.create_stream(StreamPriority::normal));
  std::vector<double> times;
  for (int i = 0; i <= measurements; ++i) {
    EGT_TRY(device_.record(*begin, *stream));
    EGT_TRY(fuse(0, *stream));
    EGT_TRY(device_.record(*end, *stream));
    EGT_TRY(device_.synchronize(*stream, timeout_seconds));
    EGT_TRY_ASSIGN(const double ms, device_.elapsed_ms(*begin, *end));
    if (i > 0) times.push_back(ms);  // code is loaded at the first time
  }
  return median_of(std::move(times));
}

}  // namespace egt
