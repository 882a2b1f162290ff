#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

using math::fold;
using math::VoteLane;

std::uint32_t vote_special(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const float x = lane.number(i, 0) * 0x1p-24f, y = std::fabs(lane.number(i, 1));
    hash = fold(hash, lane.result(i, float_bits(std::exp2(x))));
    for (const float value : {std::log2(y), std::sin(x), std::cos(x), std::tanh(x), 1 / y, std::sqrt(y)})
      hash = fold(hash, float_bits(value));
  }
  return hash;
}

/// Writes and reads half of a first-level cache, in another order in each iteration.
std::uint32_t vote_local(const VoteLane& lane) {
  std::array<std::uint32_t, 4096> words{};
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const std::uint32_t stride = lane.word(i, 0) | 1u, first = lane.word(i, 1);
    for (std::uint32_t n = 0; n < 64; ++n) words[(first + n * stride) % words.size()] += first ^ n;
    std::uint32_t sum = 0;
    for (std::uint32_t n = 64; n-- > 0;) sum = fold(sum, words[(first + n * stride) % words.size()]);
    hash = fold(hash, lane.result(i, sum));
  }
  return hash;
}

std::uint32_t vote_of(ComputeUnit unit, const VoteLane& lane) {
  switch (unit) {
    case ComputeUnit::integer:
      return math::vote_integer(lane);
    case ComputeUnit::branch:
      return math::vote_branch(lane);
    case ComputeUnit::fp32:
      return math::vote_fp32(lane);
    case ComputeUnit::fp64:
      return math::vote_fp64(lane);
    case ComputeUnit::special:
      return vote_special(lane);
    default:
      return vote_local(lane);
  }
}

void answer(const UnitVote& call, int cpu) {
  VoterAnswers& own = call.answers[cpu];
  for (int unit = 0; unit < host_units; ++unit) {
    std::uint64_t sum = 0;
    for (int lane = 0; lane < math::vote_lanes; ++lane) {
      const std::uint32_t mask = lane == 0 ? call.fault.mask_of(cpu, 0, unit) : 0;
      sum += math::vote_term(
          vote_of(static_cast<ComputeUnit>(unit), {call.seed, lane, call.iterations, mask}), lane);
    }
    own.digest[0][unit] = sum;
  }
}

}  // namespace

/// The stream's thread moves from CPU to CPU, also to those of other ranks, which mpirun may have bound to
/// CPUs of their own. The kernel rejects CPUs that are offline or that the control group excludes: they do
/// not answer.
void run(const UnitVote& call, HostStream&) {
  cpu_set_t before, one;
  if (sched_getaffinity(0, sizeof before, &before) != 0) return;
  const int cpus = std::min({max_unit_voters, CPU_SETSIZE, get_nprocs_conf()});
  for (int cpu = 0; cpu < cpus; ++cpu) {
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(cpu), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || call.answers[cpu].claims++ != 0) continue;
    answer(call, cpu);
    if (sched_getcpu() == cpu) call.answers[cpu].parts = 1;
  }
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace egt::host
