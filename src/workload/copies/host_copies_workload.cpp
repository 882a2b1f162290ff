#include "workload/copies/host_copies_workload.hpp"

#include "workload/common/findings.hpp"
#include "workload/links/link_host_copies.hpp"

namespace egt {

HostCopiesWorkload::HostCopiesWorkload(Environment& environment)
    : environment_(environment),
      copies_(environment, {.name = "host copies",
                            .part = name(),
                            .copy = [this](std::size_t chunk, std::uint64_t trip,
                                           Stream& stream) { return copy(chunk, trip, stream); },
                            .locate =
                                [this](Fault& fault) {
                                  fault.where =
                                      place_of_host_copy(environment_.place.rank, copies_.chunk_bytes());
                                }}) {}

/// The rate is the mean of both directions. It leaves the second pattern in host memory, so that a first trip
/// that copies nothing is detected.
Status HostCopiesWorkload::prepare() {
  Device& device = environment_.device;
  EGT_TRY(copies_.prepare());
  const std::uint64_t bytes = copies_.chunk_bytes();
  for (std::size_t index = 0; index < chunks_.size(); ++index) {
    Chunk& chunk = chunks_[index];
    EGT_TRY_ASSIGN(chunk.host, device.allocate_pinned(bytes));
    for (std::uint64_t trip = 0; trip < chunk.device.size(); ++trip) {
      EGT_TRY_ASSIGN(chunk.device[trip], device.allocate(bytes));
      EGT_TRY(device.fill(words(chunk, trip), pattern(index, trip), copies_.stream(index)));
    }
  }
  void *const host = chunks_[0].host.data(), *const second = chunks_[0].device[1].data();
  return copies_.measure_rate(2 * static_cast<double>(bytes), [&]() -> Status {
    EGT_TRY(device.copy(host, second, bytes, copies_.stream(0)));
    return device.copy(second, host, bytes, copies_.stream(0));
  });
}

Pattern HostCopiesWorkload::pattern(std::size_t chunk, std::uint64_t trip) const {
  return {.kind = PatternKind::random,
          .seed = pattern_seed(environment_, PatternPurpose::host_copy, chunk, trip)};
}

/// Before the trip, the destination buffer and the host memory have other patterns than the source buffer.
Result<PacedCopies::Brought> HostCopiesWorkload::copy(std::size_t chunk, std::uint64_t trip, Stream& stream) {
  const Chunk& own = chunks_[chunk];
  const WordsView from = words(own, trip), to = words(own, trip + 1);
  EGT_TRY(environment_.device.copy(own.host.data(), from.data, from.bytes(), stream));
  EGT_TRY(environment_.device.copy(to.data, own.host.data(), to.bytes(), stream));
  return PacedCopies::Brought{to, pattern(chunk, trip), pattern(chunk, trip + 1)};
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
