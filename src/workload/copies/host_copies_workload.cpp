#include "workload/copies/host_copies_workload.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "workload/common/findings.hpp"
#include "workload/links/link_host_copies.hpp"

namespace egt {
namespace {

bool is_to_host(const Injection& injection) {
  return injection.layer == host_copy_to_host;
}

}  // namespace

HostCopiesWorkload::HostCopiesWorkload(Environment& environment)
    : environment_(environment),
      copies_(environment,
              {.name = "host copies",
               .part = name(),
               .largest_chunk = 32u << 20,
               .is_hit = [](const Injection& one) { return !is_to_host(one); },
               .copy = [this](std::size_t chunk, std::uint64_t trip,
                              Stream& stream) { return copy(chunk, trip, stream); },
               .locate = [this](Fault& fault, std::size_t chunk, std::uint64_t trip,
                                const Mismatches* found) { fault.where = place_of(chunk, trip, found); }}) {}

/// Clears the host memory, because an earlier run in this process may have left the expected words there. A
/// first round trip that copies nothing would then not be detected. The measured rate is the mean of both
/// directions.
Status HostCopiesWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY(copies_.prepare());
  const std::uint64_t bytes = copies_.chunk_bytes();
  for (std::size_t index = 0; index < chunks_.size(); ++index) {
    Chunk& chunk = chunks_[index];
    for (Buffer& host : chunk.host) {
      EGT_TRY_ASSIGN(host, device.allocate_pinned(bytes));
      std::memset(host.data(), 0, bytes);
    }
    for (std::uint64_t trip = 0; trip < chunk.device.size(); ++trip) {
      EGT_TRY_ASSIGN(chunk.device[trip], device.allocate(bytes));
      EGT_TRY(device.fill(words(chunk, trip), pattern(index, trip), copies_.stream(index)));
    }
  }
  void *const host = host_of(0, 0).data(), *const second = chunks_[0].device[1].data();
  return copies_.measure_rate(2 * static_cast<double>(bytes), [&]() -> Status {
    EGT_TRY(device.copy(host, second, bytes, copies_.stream(0)));
    return device.copy(second, host, bytes, copies_.stream(0));
  });
}

Pattern HostCopiesWorkload::pattern(std::size_t chunk, std::uint64_t trip) const {
  return {.kind = PatternKind::random,
          .seed = pattern_seed(environment_, PatternPurpose::host_copy, chunk, trip)};
}

/// Before the trip, the destination buffer and the host memory have other patterns than the source buffer. A
/// fault of the copy to the host is injected into its source, which then gets its bits back.
Result<PacedCopies::Brought> HostCopiesWorkload::copy(std::size_t chunk, std::uint64_t trip, Stream& stream) {
  Device& device = environment_.device;
  const WordsView from = words(chunks_[chunk], trip), to = words(chunks_[chunk], trip + 1);
  void* const host = host_of(chunk, trip).data();
  Flip flip = {.count = 0};
  if (const auto due = environment_.injector.take(InjectionKind::host_copy, copies_.step(), is_to_host)) {
    flip = choose_flip(*due, from.count, environment_.seed);
    environment_.injector.report(*due, copies_.step(), flip,
                                 place_of(chunk, trip, nullptr) + ", to the host");
  }
  const auto strike = [&] { return flip.count > 0 ? device.flip(from, flip, stream) : Status(); };
  EGT_TRY(strike());
  EGT_TRY(device.copy(host, from.data, from.bytes(), stream));
  EGT_TRY(strike());
  EGT_TRY(device.copy(to.data, host, to.bytes(), stream));
  return PacedCopies::Brought{to, pattern(chunk, trip), pattern(chunk, trip + 1)};
}

/// Words that are right in host memory became wrong after it, and the others before it or in it.
std::string HostCopiesWorkload::place_of(std::size_t chunk, std::uint64_t trip,
                                         const Mismatches* found) const {
  std::string place = place_of_host_copy(environment_.place.rank, copies_.chunk_bytes());
  if (found == nullptr || found->samples == 0) return place;
  const WordsView host = host_of(chunk, trip).words();
  const auto samples =
      std::span(found->sample).first(std::min<std::size_t>(found->samples, Mismatches::max_samples));
  const auto right = std::count_if(samples.begin(), samples.end(), [&](const auto& one) {
    return one.index < host.count && host.data[one.index] == one.expected;
  });
  if (right == std::ssize(samples)) return place + ", to the device: right in host memory";
  if (right > 0) return place + ", in both directions";
  const std::uint64_t lowest = lowest_sample(*found).index;  // its expected word is in the fault
  return place + ", to the host, or in host memory: wrong there" +
         (lowest < host.count ? fmt::format(" ({})", hex(host.data[lowest])) : "");
}

PartReport HostCopiesWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description = "copies to pinned host memory and back, both ways at once, verified on the device";
  report.figures = Json::object();
  copies_.report(report);
  report.load.host_copies = copies_.seconds_alone();
  if (const auto rate = copies_.rate()) report.load.alone = {{"host_copy_gb_per_s", *rate * 1e-9}};
  return report;
}

}  // namespace egt
