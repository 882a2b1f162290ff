#include <cuda_runtime.h>

#include "egt/core/math/unit_vote.hpp"
#include "kernels/launch.hpp"
#include "kernels/vector.cuh"

// Architectures with an fp8 `mma.sync`, the instruction of one warp. All others emulate it, Hopper with fp16
// tensor cores. Hopper's native fp8 instruction (`wgmma`) needs four warps.
#define EGT_HAS_FP8_MMA (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define EGT_HAS_FP8_WGMMA 1
#else
#define EGT_HAS_FP8_WGMMA 0
#endif

namespace egt::kernels {
namespace {

using math::fold;
using math::VoteLane;

constexpr unsigned vote_threads = sub_partitions * math::vote_lanes;
/// Most blocks end at once, because another block has claimed their multiprocessor. Under load, many blocks
/// are needed until one has run on every multiprocessor.
constexpr unsigned blocks_per_multiprocessor = 16;
constexpr int sums_until_reset = 16;  ///< iterations that a tensor core's sums grow

struct Table {
  static constexpr unsigned words = 1024;
  std::uint32_t word[words];

  constexpr Table() : word() {
    for (std::uint32_t i = 0; i < words; ++i) word[i] = (i + 1) * 0x9E3779B1u ^ i << 7;
  }
};
__constant__ const Table constant_table = Table();
__device__ const Table cached_table = Table();

/// The approximations that only a GPU's special function unit has.
__device__ std::uint32_t vote_special(const VoteLane& lane) {
  std::uint32_t hash = 0;
  const auto add = [&hash](float value) { hash = fold(hash, float_bits(value)); };
  for (int i = 0; i < lane.iterations; ++i) {
    const float x = lane.number(i, 0) * 0x1p-24f, y = fabsf(lane.number(i, 1));
    float result;
    asm volatile("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    hash = fold(hash, lane.result(i, float_bits(result)));
    asm volatile("lg2.approx.f32 %0, %1;" : "=f"(result) : "f"(y));
    add(result);
    asm volatile("sin.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    add(result);
    asm volatile("cos.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    add(result);
    asm volatile("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    add(result);
    asm volatile("rcp.approx.f32 %0, %1;" : "=f"(result) : "f"(y));
    add(result);
    asm volatile("rsqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(y));
    add(result);
    asm volatile("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(y));
    add(result);
    double wide;
    asm volatile("rcp.approx.ftz.f64 %0, %1;" : "=d"(wide) : "d"(lane.wide_number(i, 2)));
    hash = math::double_fold(hash, wide);
    asm volatile("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(wide) : "d"(fabs(lane.wide_number(i, 4))));
    hash = math::double_fold(hash, wide);
    std::uint32_t pair = lane.word(i, 6) & 0x8FFF8FFFu | 0x30003000u;
    asm volatile("ex2.approx.f16x2 %0, %0;" : "+r"(pair));
    hash = fold(hash, pair);
    asm volatile("tanh.approx.f16x2 %0, %0;" : "+r"(pair));
    hash = fold(hash, pair);
  }
  return hash;
}

__device__ std::uint32_t vote_half2(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const std::uint32_t a = lane.word(i, 0) & 0x8FFF8FFFu | 0x30003000u,
                        b = lane.word(i, 1) & 0x8FFF8FFFu | 0x30003000u,
                        c = lane.word(i, 2) & 0x8FFF8FFFu | 0x30003000u;
    std::uint32_t result;
    asm volatile("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    hash = fold(hash, lane.result(i, result));
    asm volatile("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(c));
    hash = fold(hash, result);
    asm volatile("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(b), "r"(c));
    hash = fold(hash, result);
    asm volatile("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    hash = fold(hash, result);
  }
  return hash;
}

__device__ std::uint32_t vote_shuffle(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const std::uint32_t v = lane.word(i, 0);
    hash = fold(hash, lane.result(i, __shfl_xor_sync(~0u, v, 1 + i % 31)));
    hash = fold(hash, __shfl_sync(~0u, v, static_cast<int>(v & 31u)));
    hash = fold(hash, __shfl_up_sync(~0u, v, static_cast<unsigned>(1 + i % 31)));
    hash = fold(hash, __ballot_sync(~0u, v >> 31 != 0));
    hash = fold(hash, __match_any_sync(~0u, v & 3u));
    hash = fold(hash, __reduce_add_sync(~0u, v));
    hash = fold(hash, __reduce_xor_sync(~0u, v));
  }
  return hash;
}

/// `words`: the warp's own shared memory. Stores, atomics and loads fall into other banks in each iteration.
__device__ std::uint32_t vote_local(const VoteLane& lane, std::uint32_t* words) {
  std::uint32_t hash = 0;
  const auto mine = static_cast<unsigned>(lane.lane);
  for (int i = 0; i < lane.iterations; ++i) {
    const unsigned turn = static_cast<unsigned>(i), rotated = (mine + turn) % 32;
    words[mine ^ turn % 32] = lane.word(i, 0);
    __syncwarp();
    atomicAdd(&words[rotated / 4 * 4], lane.word(i, 1));
    __syncwarp();  // sums and XORs of one word do not commute
    atomicXor(&words[rotated / 2 * 2], lane.word(i, 2));
    __syncwarp();
    hash = fold(hash, lane.result(i, words[rotated * 5 % 32]));
    __syncwarp();
  }
  return hash;
}

__device__ std::uint32_t vote_cache(const VoteLane& lane) {
  std::uint32_t hash = 0;
  for (int i = 0; i < lane.iterations; ++i) {
    const std::uint32_t place = lane.word(i, 0);
    hash = fold(hash, lane.result(i, __ldca(&cached_table.word[place % Table::words])));
    // Constant memory is read by one address per warp at a time: one place for all lanes, then one each.
    hash = fold(hash, constant_table.word[static_cast<unsigned>(i) * 37u % Table::words]);
    hash = fold(hash, constant_table.word[(place >> 8) % Table::words]);
  }
  return hash;
}

/// Calls `multiply(i, sums)` in each iteration, which adds products to the four words of `sums`.
template <typename Multiply>
__device__ std::uint32_t vote_tensor(const VoteLane& lane, const Multiply& multiply) {
  std::uint32_t hash = 0, sums[4] = {};
  for (int i = 0; i < lane.iterations; ++i) {
    if (i % sums_until_reset == 0)
      for (std::uint32_t& sum : sums) sum = 0;
    multiply(i, sums);
    sums[0] = lane.result(i, sums[0]);
    for (const std::uint32_t sum : sums) hash = fold(hash, sum);
  }
  return hash;
}

// Operands have any sign and mantissa, and exponents in which no sum overflows.
#define EGT_MMA_16_BIT(shape_and_types)                                                                  \
  asm volatile("mma.sync.aligned." shape_and_types " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};" \
               : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])                              \
               : "r"(of(0)), "r"(of(1)), "r"(of(2)), "r"(of(3)), "r"(of(4)), "r"(of(5)))

__device__ std::uint32_t vote_tensor_fp64(const VoteLane& lane) {
  std::uint32_t hash = 0;
  double sums[2] = {};
  for (int i = 0; i < lane.iterations; ++i) {
    if (i % sums_until_reset == 0) sums[0] = sums[1] = 0;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
                 : "+d"(sums[0]), "+d"(sums[1])
                 : "d"(lane.wide_number(i, 0)), "d"(lane.wide_number(i, 2)));
    hash = fold(hash, lane.result(i, static_cast<std::uint32_t>(__double2loint(sums[0]))));
    hash = fold(hash, static_cast<std::uint32_t>(__double2hiint(sums[0])));
    hash = math::double_fold(hash, sums[1]);
  }
  return hash;
}

#if EGT_HAS_FP8_WGMMA
/// `operands(i)(k)`: operand k of iteration i. All warps of the block have the same operand a, in registers,
/// and read the same operand b, in shared memory, so their sums are equal.
template <typename Operands>
__device__ std::uint32_t vote_tensor_fp8(const VoteLane& lane, const Operands& operands) {
  constexpr unsigned half_bytes = math::vote_lanes * sizeof(std::uint32_t);  // half of the inner dimension
  __shared__ alignas(half_bytes) std::uint32_t b[2][math::vote_lanes];
  // Matrix descriptor: address and distances in units of 16 bytes, no swizzle
  const std::uint64_t b_matrix = __cvta_generic_to_shared(b) >> 4 | std::uint64_t{half_bytes >> 4} << 16 |
                                 std::uint64_t{2 * half_bytes >> 4} << 32;
  return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
    const auto of = operands(i);
    if (threadIdx.x < math::vote_lanes) {
      b[0][lane.lane] = of(4);
      b[1][lane.lane] = of(5);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // stores before the tensor cores' reads
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, 1, 0;"
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,add,1,1;}"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(of(0)), "r"(of(1)), "r"(of(2)), "r"(of(3)), "l"(b_matrix));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();  // all warps have read b
  });
}
#endif

template <ComputeUnit unit>
__device__ std::uint32_t vote_of(const VoteLane& lane, std::uint32_t* words) {
  const auto bits = [&lane](int i, std::uint32_t keep, std::uint32_t base) {
    return [&lane, i, keep, base](int k) { return lane.word(i, k) & keep | base; };
  };
  if constexpr (unit == ComputeUnit::integer) return math::vote_integer(lane);
  if constexpr (unit == ComputeUnit::branch) return math::vote_branch(lane);
  if constexpr (unit == ComputeUnit::fp32) return math::vote_fp32(lane);
  if constexpr (unit == ComputeUnit::fp64) return math::vote_fp64(lane);
  if constexpr (unit == ComputeUnit::special) return vote_special(lane);
  if constexpr (unit == ComputeUnit::local) return vote_local(lane, words);
  if constexpr (unit == ComputeUnit::half2) return vote_half2(lane);
  if constexpr (unit == ComputeUnit::shuffle) return vote_shuffle(lane);
  if constexpr (unit == ComputeUnit::cache) return vote_cache(lane);
  if constexpr (unit == ComputeUnit::tensor_bf16)
    return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
      const auto of = bits(i, 0x83FF83FFu, 0x3C003C00u);
      EGT_MMA_16_BIT("m16n8k16.row.col.f32.bf16.bf16.f32");
    });
  if constexpr (unit == ComputeUnit::tensor_fp16)
    return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
      const auto of = bits(i, 0x8FFF8FFFu, 0x30003000u);
      EGT_MMA_16_BIT("m16n8k16.row.col.f32.f16.f16.f32");
    });
  if constexpr (unit == ComputeUnit::tensor_tf32)
    return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
      const auto of = bits(i, 0x81FFE000u, 0x3E000000u);
      EGT_MMA_16_BIT("m16n8k8.row.col.f32.tf32.tf32.f32");
    });
  if constexpr (unit == ComputeUnit::tensor_fp64) return vote_tensor_fp64(lane);
  if constexpr (unit == ComputeUnit::tensor_int8)
    return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
      const auto of = bits(i, ~0u, 0);
      EGT_MMA_16_BIT("m16n8k32.row.col.s32.s8.s8.s32");
    });
  if constexpr (unit == ComputeUnit::tensor_fp8) {
    const auto operands = [&](int i) { return bits(i, 0x9F9F9F9Fu, 0x20202020u); };
#if EGT_HAS_FP8_WGMMA
    return vote_tensor_fp8(lane, operands);
#elif EGT_HAS_FP8_MMA
    return vote_tensor(lane, [&](int i, std::uint32_t* sums) {
      const auto of = operands(i);
      EGT_MMA_16_BIT("m16n8k32.row.col.f32.e4m3.e4m3.f32");
    });
#endif
  }
  return 0;
}

/// All lanes of a warp; the first one stores the digest.
template <int unit>
__device__ void answer(const UnitVote& call, int voter, int part, int lane, std::uint32_t* words) {
#if !EGT_HAS_FP8_MMA && !EGT_HAS_FP8_WGMMA
  if (unit == static_cast<int>(ComputeUnit::tensor_fp8)) return;
#endif
  const VoteLane own{call.seed, lane, call.iterations, lane == 0 ? call.fault.mask_of(voter, part, unit) : 0};
  unsigned long long sum = math::vote_term(vote_of<static_cast<ComputeUnit>(unit)>(own, words), lane);
  for (int offset = math::vote_lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (lane == 0) call.answers[voter].digest[part][unit] = sum;
}

template <int... units>
__device__ void answer_all(const UnitVote& call, int voter, int part, int lane, std::uint32_t* words,
                           std::integer_sequence<int, units...>) {
  (answer<units>(call, voter, part, lane, words), ...);
}

/// One warp per sub-partition. The first block that a multiprocessor runs does the work, the others end.
__global__ void __launch_bounds__(vote_threads, 4) vote_kernel(const UnitVote call) {
  __shared__ bool is_first;
  __shared__ std::uint32_t words[sub_partitions][math::vote_lanes];
  const unsigned voter = multiprocessor_id();
  if (threadIdx.x == 0) is_first = voter < max_unit_voters && atomicAdd(&call.answers[voter].claims, 1) == 0;
  __syncthreads();
  if (!is_first) return;
  const int part = static_cast<int>(threadIdx.x) / math::vote_lanes,
            lane = static_cast<int>(threadIdx.x) % math::vote_lanes;
  words[part][lane] = 0;
  __syncwarp();
  answer_all(call, static_cast<int>(voter), part, lane, words[part],
             std::make_integer_sequence<int, compute_units>());
  // After a preemption a block may continue elsewhere. Then its answers do not count, and another block may
  // claim the multiprocessor.
  if (lane != 0) return;
  if (multiprocessor_id() == voter)
    atomicOr(&call.answers[voter].parts, 1u << part);
  else
    atomicExch(&call.answers[voter].claims, 0u);
}

}  // namespace

int enqueue(const Launch& launch, const UnitVote& call) {
  const dim3 grid(static_cast<unsigned>(launch.multiprocessors) * blocks_per_multiprocessor);
  return start(launch, grid, dim3(vote_threads), 0, vote_kernel, call);
}

}  // namespace egt::kernels
