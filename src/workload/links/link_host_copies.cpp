#include "workload/links/link_host_copies.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "device/system/numa_memory.hpp"
#include "workload/common/findings.hpp"

namespace egt {
namespace {

/// PCIe is at its full rate long before; pinning memory takes about a second a gigabyte.
constexpr std::uint64_t most_bytes = 256'000'000;

}  // namespace

LinkHostCopies::LinkHostCopies(LinkContext& bench, std::int64_t trial, const LinksOptions& options)
    : bench_(bench),
      trial_(trial),
      repeats_(options.repeats),
      bytes_(std::min(options.size, most_bytes) / sizeof(std::uint32_t) * sizeof(std::uint32_t)) {}

Result<HostCopyOutcome> LinkHostCopies::make() {
  EGT_TRY_ASSIGN(prepared_, bench_.device().create_event(EventUse::order));
  for (auto* event : {&other_begin_, &other_end_}) {
    EGT_TRY_ASSIGN(*event, bench_.device().create_event(EventUse::timing));
  }
  outcome_.bytes = bytes_;
  outcome_.repeats = repeats_;
  const auto numa = NumaMemory::open();
  bool bound = false;
  for (const int node : numa.ok() ? numa.value()->nodes() : std::vector<int>()) {
    if (!numa.value()->bind_thread(node).ok()) break;
    bound = true;
    const Status taken = take_memory();
    numa.value()->release_thread();
    EGT_TRY(taken);
    const auto source = numa.value()->node_of(source_.data(), bytes_),
               target = numa.value()->node_of(target_.data(), bytes_);
    EGT_TRY(measure_node(source == target ? source : std::nullopt));
  }
  if (!bound) {
    EGT_TRY(take_memory());
    EGT_TRY(measure_node({}));
  }
  return std::move(outcome_);
}

/// A page comes from the node of the thread that touches it first.
Status LinkHostCopies::take_memory() {
  for (Buffer* buffer : {&source_, &target_}) {
    *buffer = Buffer();
    EGT_TRY_ASSIGN(*buffer, bench_.device().allocate_pinned(bytes_));
    std::memset(buffer->data(), 0, bytes_);
  }
  return {};
}

Status LinkHostCopies::measure_node(std::optional<int> node) {
  HostCopyFigures figures;
  figures.numa_node = node;
  EGT_TRY_ASSIGN(figures.to_device, measure(Way::to_device));
  EGT_TRY_ASSIGN(figures.from_device, measure(Way::from_device));
  EGT_TRY_ASSIGN(figures.both_ways, measure(Way::both));
  outcome_.nodes.push_back(figures);
  return {};
}

Pattern LinkHostCopies::pattern(int repeat, bool to_device) const {
  const int rank = bench_.environment().place.rank;
  return {
      .kind = PatternKind::random,
      .seed = link_seed(bench_.environment().seed,
                        {static_cast<std::uint64_t>(trial_), measurement_, static_cast<std::uint64_t>(repeat),
                         static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(to_device)})};
}

Result<LinkTiming> LinkHostCopies::measure(Way way) {
  std::vector<double> seconds;
  EGT_TRY(bench_.reset_reports(1));
  for (int repeat = -1; repeat < repeats_; ++repeat) {  // the first one is for warming up
    EGT_TRY(prepare(repeat));
    EGT_TRY(copy(way, repeat));
    EGT_TRY(bench_.wait());
    EGT_TRY_ASSIGN(double longest, way == Way::from_device ? Result<double>(0.0) : bench_.clock_seconds());
    if (way != Way::to_device) {
      EGT_TRY_ASSIGN(const double ms, bench_.device().elapsed_ms(*other_begin_, *other_end_));
      longest = std::max(longest, ms * 1e-3);
    }
    if (repeat >= 0) seconds.push_back(longest);
    EGT_TRY(bench_.check_stop());
  }
  EGT_TRY(bench_.fetch_reports(1));
  EGT_TRY(bench_.wait());
  ++measurement_;
  const auto passes = static_cast<std::uint64_t>(repeats_ + 1) * (way == Way::both ? 2 : 1);
  bench_.count_verified(bytes_ * passes);
  if (const Mismatches& found = bench_.told(0); found.count > 0) {
    const Mismatches::Sample sample = lowest_sample(found);
    outcome_.wrong.push_back({.from = -1,
                              .bytes = bytes_,
                              .repeat = 0,
                              .offset = sample.index * sizeof(std::uint32_t),
                              .expected = sample.expected,
                              .actual = sample.actual,
                              .words = found.count});
  }
  return timing_of(std::move(seconds));
}

/// What goes to the device lies in the host's memory, what comes from it in the device's; what is there
/// before at both ends is something else.
Status LinkHostCopies::prepare(int repeat) {
  Device& device = bench_.device();
  const WordsView out = bench_.outgoing(bytes_), in = bench_.incoming(bytes_);
  EGT_TRY(device.fill(out, pattern(repeat, true), bench_.stream()));
  EGT_TRY(device.copy(source_.data(), out.data, bytes_, bench_.stream()));
  Pattern before = pattern(repeat, true);
  before.kind = PatternKind::random_inverse;
  EGT_TRY(device.fill(in, before, bench_.stream()));
  EGT_TRY(device.copy(target_.data(), in.data, bytes_, bench_.stream()));
  EGT_TRY(device.fill(out, pattern(repeat, false), bench_.stream()));
  return device.record(*prepared_, bench_.stream());
}

Status LinkHostCopies::copy(Way way, int repeat) {
  Device& device = bench_.device();
  if (way != Way::from_device) {
    EGT_TRY(bench_.start_clock());
    EGT_TRY(device.copy(bench_.incoming(bytes_).data, source_.data(), bytes_, bench_.stream()));
    EGT_TRY(bench_.stop_clock());
  }
  if (way != Way::to_device) {
    Stream& other = bench_.other_stream();
    EGT_TRY(device.wait(other, *prepared_));
    EGT_TRY(device.record(*other_begin_, other));
    EGT_TRY(device.copy(target_.data(), bench_.outgoing(bytes_).data, bytes_, other));
    EGT_TRY(device.record(*other_end_, other));
    EGT_TRY(device.wait(bench_.stream(), *other_end_));
  }
  return verify(way, repeat);
}

Status LinkHostCopies::verify(Way way, int repeat) {
  Device& device = bench_.device();
  const WordsView in = bench_.incoming(bytes_);
  if (way != Way::from_device)
    EGT_TRY(device.verify(in, pattern(repeat, true), bench_.report(0), bench_.stream()));
  if (way == Way::to_device) return {};
  EGT_TRY(device.copy(in.data, target_.data(), bytes_, bench_.stream()));
  return device.verify(in, pattern(repeat, false), bench_.report(0), bench_.stream());
}

}  // namespace egt
