#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "workload/bench/scaling_plan.hpp"
#include "workload/ceilings/ceiling_job.hpp"
#include "workload/collective/known_answer.hpp"
#include "workload/common/findings.hpp"

namespace egt {

/// The limit of an all-reduce is a ring of plain copies: each rank sends the bytes it must send to the next
/// rank and receives as many from the previous one concurrently. The limit of a known-answer all-reduce,
/// which includes fill and verification, is a plain all-reduce.
Result<std::unique_ptr<CeilingJob>> make_sum_ceiling(const CeilingWorld& world, const CeilingTrial& trial) {
  Environment& environment = world.environment;
  Device& device = environment.device;
  Communicator& communicator = environment.communicator;
  const int ranks = communicator.size(), self = communicator.rank();
  const std::size_t words = trial.bytes / sizeof(float);
  const auto moved = static_cast<std::size_t>(bus_factor(CollectiveKind::all_reduce, ranks) *
                                              static_cast<double>(trial.bytes));
  EGT_TRY_ASSIGN(Buffer data, device.allocate(trial.bytes));
  EGT_TRY_ASSIGN(Buffer other, device.allocate(std::max<std::size_t>(trial.bytes, moved)));
  EGT_TRY_ASSIGN(Buffer incoming, device.allocate(std::max<std::size_t>(moved, 1)));
  EGT_TRY_ASSIGN(Buffer reports, device.allocate(reports_of(ranks) * sizeof(Mismatches)));
  EGT_TRY_ASSIGN(const auto stream, device.create_stream(StreamPriority::normal));
  EGT_TRY(device.set_zero(data.data(), data.bytes(), *stream));
  EGT_TRY(device.set_zero(other.data(), other.bytes(), *stream));
  for (std::size_t i = 0; i < reports_of(ranks); ++i)
    EGT_TRY(device.reset(reports.as<Mismatches>() + i, *stream));
  EGT_TRY(device.synchronize(*stream, ready_seconds));
  const auto bare = [&communicator, words](void* summed) {
    return [&communicator, words, summed](Stream& in) {
      return communicator.all_reduce(summed, words, ElementType::f32, in);
    };
  };
  StreamTrial both;
  both.with_peers = true;
  both.ours.units = both.limit.units = static_cast<double>(moved);
  if (trial.kind == CeilingKind::collective) {
    const KnownAnswer answer{
        .round = {.number = 0, .size = ranks, .slice = words},
        .rank = self,
        .part_words = words,
        .receive = data.as<std::uint32_t>(),
        .seed = [seed = environment.seed](int, int to) { return seed + static_cast<std::uint64_t>(to); }};
    both.found = reports.as<Mismatches>() + sum_report;
    both.fault = fault_of(environment, "collective", "known answer", "bench", -1);
    both.fault.where = trial.rows.front().name;
    both.fault.rank = -1;
    both.fault.blame = Blame::ambiguous;
    both.fault.suspects = first_ranks(ranks);
    both.work.collective_elements_checked = words;
    both.ours.enqueue = [&device, &communicator, answer,
                         reported = reports.as<Mismatches>()](Stream& in) -> Status {
      EGT_TRY(answer.fill(device, in));
      EGT_TRY(answer.run(communicator, in));
      return answer.verify(device, reported, in);
    };
    both.limit.enqueue = bare(other.data());
  } else {
    both.ours.enqueue = bare(data.data());
    both.limit.enqueue = [&communicator, moved, next = (self + 1) % ranks,
                          before = (self + ranks - 1) % ranks, out = other.data(),
                          in = incoming.data()](Stream& in_stream) {
      const std::array sends = {Message{out, moved, next}};
      const std::array receives = {Message{in, moved, before}};
      return communicator.exchange(sends, receives, in_stream);
    };
  }
  for (Buffer* buffer : {&data, &other, &incoming, &reports}) both.memory.push_back(std::move(*buffer));
  return make_stream_ceiling(environment, std::move(both));
}

}  // namespace egt
