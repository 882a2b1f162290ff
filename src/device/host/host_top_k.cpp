#include <array>
#include <cstdint>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// The key of the k-th element by magnitude, and how many elements with this key to select.
struct Threshold {
  std::uint32_t key = 0;
  std::int64_t left = 0;
};

Threshold threshold_of(const float* values, std::int64_t count, std::int64_t k) {
  Threshold threshold{.key = 0, .left = k};
  for (const math::KeyDigit& digit : math::key_digits) {
    std::array<std::int64_t, math::max_digit_values> histogram{};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t key = math::magnitude_key(values[i]);
      if (digit.before(key) == threshold.key) ++histogram[digit.of(key)];
    }
    std::uint32_t value = (1u << digit.bits) - 1;
    for (; value > 0 && threshold.left > histogram[value]; --value) threshold.left -= histogram[value];
    threshold.key = threshold.key << digit.bits | value;
  }
  return threshold;
}

void select_range(const TopKSelection& call) {
  Threshold threshold = threshold_of(call.residual, call.gradient.count, call.selected.count);
  SparseElement* selected = call.selected.data;
  for (std::int64_t i = 0; i < call.gradient.count; ++i) {
    const std::uint32_t key = math::magnitude_key(call.residual[i]);
    if (key < threshold.key || (key == threshold.key && threshold.left-- <= 0)) continue;
    *selected++ = {static_cast<std::uint32_t>(i), call.residual[i]};
    call.residual[i] = 0;
  }
}

}  // namespace

void run(const TopKSelection& call, HostStream& stream) {
  const auto* const gradient = static_cast<const float*>(call.gradient.data);
  for_ranges(stream, call.gradient.count, chunk_elements, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) call.residual[i] = math::add(gradient[i], call.residual[i]);
  });
  select_range(call);
}

void run(const ScatterAdd& call, HostStream&) {
  const auto& [sum, elements] = call;
  auto* const sums = static_cast<float*>(sum.data);
  for (const SparseElement* e = elements.data; e != elements.data + elements.count; ++e)
    if (e->index < sum.count) sums[e->index] = math::add(sums[e->index], e->value);
}

}  // namespace egt::host
