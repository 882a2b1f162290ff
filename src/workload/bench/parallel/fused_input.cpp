#include "workload/bench/parallel/fused_input.hpp"

#include "workload/common/standalone_rate.hpp"

namespace egt {

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

Result<double> FusedInput::measure() {
  EGT_TRY_ASSIGN(const auto stream, device_.create_stream(StreamPriority::normal));
  EGT_TRY_ASSIGN(const double batches_per_second,
                 rate_alone(device_, *stream, 1, [&] { return fuse(0, *stream); }));
  return 1e3 / batches_per_second;
}

}  // namespace egt
