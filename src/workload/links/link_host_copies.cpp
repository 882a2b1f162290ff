#include "workload/links/link_host_copies.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "device/system/numa_memory.hpp"

namespace egt {
namespace {

/// PCIe reaches its full rate at much smaller sizes. Pinning memory needs about one second per gigabyte.
constexpr std::uint64_t max_bytes = 256'000'000;

}  // namespace

std::string place_of_host_copy(int rank, std::uint64_t bytes) {
  return fmt::format("what went between rank {}'s device and its host, a copy of {} B", rank, bytes);
}

LinkHostCopies::LinkHostCopies(LinkContext& bench, std::int64_t trial, const LinksOptions& options)
    : bench_(bench), trial_(trial) {
  outcome_.bytes = std::min(options.size, max_bytes) / sizeof(std::uint32_t) * sizeof(std::uint32_t);
  outcome_.repeats = options.repeats;
}

/// After an aborted wait, copies may still use this object's buffers, so these are kept.
Result<HostCopyOutcome> LinkHostCopies::make() {
  auto made = make_on_nodes();
  if (!made.ok() && !bench_.settle().ok())
    for (Buffer* buffer : {&source_, &target_}) bench_.keep(std::move(*buffer));
  return made;
}

Result<HostCopyOutcome> LinkHostCopies::make_on_nodes() {
  for (auto* event : {&prepared_, &other_end_}) {
    EGT_TRY_ASSIGN(*event, bench_.device().create_event(EventUse::order));
  }
  const auto numa = NumaMemory::open();
  bool bound = false;
  for (const int node : numa.ok() ? numa.value()->nodes() : std::vector<int>()) {
    if (!numa.value()->bind_thread(node).ok()) break;
    bound = true;
    const Status taken = take_memory();
    numa.value()->release_thread();
    EGT_TRY(taken);
    const auto source = numa.value()->node_of(source_.data(), outcome_.bytes),
               target = numa.value()->node_of(target_.data(), outcome_.bytes);
    EGT_TRY(measure_node(source == target ? source : std::nullopt));
  }
  if (!bound) {
    EGT_TRY(take_memory());
    EGT_TRY(measure_node({}));
  }
  return std::move(outcome_);
}

/// First touch: a page comes from the NUMA node of the thread that touches it first.
Status LinkHostCopies::take_memory() {
  for (Buffer* buffer : {&source_, &target_}) {
    *buffer = Buffer();
    EGT_TRY_ASSIGN(*buffer, bench_.device().allocate_pinned(outcome_.bytes));
    std::memset(buffer->data(), 0, outcome_.bytes);
  }
  return {};
}

Status LinkHostCopies::measure_node(std::optional<int> node) {
  HostCopyFigures figures;
  figures.numa_node = node;
  EGT_TRY_ASSIGN(figures.to_device, measure({.to_device = true}));
  EGT_TRY_ASSIGN(figures.from_device, measure({.from_device = true}));
  EGT_TRY_ASSIGN(figures.both_ways, measure({.to_device = true, .from_device = true}));
  outcome_.nodes.push_back(figures);
  return {};
}

Pattern LinkHostCopies::pattern(int repeat, bool to_device) const {
  const int rank = bench_.environment().place.rank;
  return {.kind = PatternKind::random,
          .seed = link_seed(
              bench_.environment().seed,
              {static_cast<std::uint64_t>(trial_), measurements_, static_cast<std::uint64_t>(repeat),
               static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(to_device)})};
}

Result<LinkTiming> LinkHostCopies::measure(Way way) {
  const int repeats = outcome_.repeats + 1;  // the first one is a warm-up
  EGT_TRY_ASSIGN(const auto measured,
                 bench_.measure({.repeats = repeats,
                                 .reports = 1,
                                 .prepare = [&](int repeat, double) { return prepare(way, repeat); },
                                 .move = [&] { return copy(way); },
                                 .verify = [&](int repeat) { return verify(way, repeat); }}));
  ++measurements_;
  bench_.count_verified(outcome_.bytes * static_cast<std::uint64_t>(repeats) *
                        (way.to_device && way.from_device ? 2 : 1));
  if (const auto wrong = bench_.wrong_data(-1, outcome_.bytes, 1)) outcome_.wrong.push_back(*wrong);
  return timing_of(seconds_of(std::span(measured).subspan(1)));
}

/// Data for the device start in host memory, and data from the device in device memory. The destinations hold
/// other data before the copy.
Status LinkHostCopies::prepare(Way way, int repeat) {
  Device& device = bench_.device();
  const std::uint64_t bytes = outcome_.bytes;
  const WordsView out = bench_.outgoing(bytes), in = bench_.incoming(bytes);
  if (way.to_device) {
    EGT_TRY(device.fill(out, pattern(repeat, true), bench_.stream()));
    EGT_TRY(device.copy(source_.data(), out.data, bytes, bench_.stream()));
  }
  Pattern before = pattern(repeat, true);
  before.kind = PatternKind::random_inverse;
  EGT_TRY(device.fill(in, before, bench_.stream()));
  if (way.from_device) {
    EGT_TRY(device.copy(target_.data(), in.data, bytes, bench_.stream()));
    EGT_TRY(device.fill(out, pattern(repeat, false), bench_.stream()));
  }
  return device.record(*prepared_, bench_.stream());
}

/// Copies in both directions run in two streams. The timed stream then waits for the other one.
Status LinkHostCopies::copy(Way way) {
  Device& device = bench_.device();
  const std::uint64_t bytes = outcome_.bytes;
  const bool both = way.to_device && way.from_device;
  Stream& back = both ? bench_.other_stream() : bench_.stream();
  if (way.to_device)
    EGT_TRY(device.copy(bench_.incoming(bytes).data, source_.data(), bytes, bench_.stream()));
  if (both) EGT_TRY(device.wait(back, *prepared_));
  if (way.from_device) EGT_TRY(device.copy(target_.data(), bench_.outgoing(bytes).data, bytes, back));
  if (!both) return {};
  EGT_TRY(device.record(*other_end_, back));
  return device.wait(bench_.stream(), *other_end_);
}

Status LinkHostCopies::verify(Way way, int repeat) {
  Device& device = bench_.device();
  const WordsView in = bench_.incoming(outcome_.bytes);
  if (way.to_device) EGT_TRY(device.verify(in, pattern(repeat, true), bench_.report(0), bench_.stream()));
  if (!way.from_device) return {};
  EGT_TRY(device.copy(in.data, target_.data(), outcome_.bytes, bench_.stream()));
  return device.verify(in, pattern(repeat, false), bench_.report(0), bench_.stream());
}

}  // namespace egt
