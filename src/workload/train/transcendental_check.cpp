#include "workload/train/transcendental_check.hpp"

#include <algorithm>

namespace egt {

namespace {

constexpr std::int64_t values_per_multiprocessor = 2048;  // what a GPU's multiprocessor holds in threads
constexpr std::uint64_t inputs_sequence = (std::uint64_t{1} << 62) + 1;
constexpr float inputs_scale = 4.0f;

}  // namespace

std::uint64_t TranscendentalCheck::words() const {
  return static_cast<std::uint64_t>(std::max(1, device_.info().multiprocessors) * values_per_multiprocessor);
}

Status TranscendentalCheck::prepare() {
  EGT_TRY_ASSIGN(values_, device_.allocate(words() * sizeof(float)));
  EGT_TRY_ASSIGN(own_stream_, device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  return {};
}

Status TranscendentalCheck::enqueue(Digest* answer, Stream& stream) {
  const VectorView values{values_.data(), ElementType::f32, static_cast<std::int64_t>(words())};
  const WordsView results{values_.as<std::uint32_t>(), words()};
  EGT_TRY(device_.randomize(values, {.seed = seed_, .sequence = inputs_sequence, .scale = inputs_scale},
                            *own_stream_));
  EGT_TRY(device_.sine_exponential(results, iterations_, answer, *own_stream_));
  EGT_TRY(device_.record(*done_, *own_stream_));
  return device_.wait(stream, *done_);
}

}  // namespace egt
