// Run by mpirun with one rank per GPU of one host: shared memory, and the all-reduce over peer copies.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"
#include "egt/core/math/half.hpp"
#include "on_cuda.hpp"
#include "ranks/peer/peer_communicator.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt::test {
namespace {

/// Fewer than ranks, odd, one test chunk and one more, many chunks.
constexpr std::size_t counts[] = {0, 1, 3, 1001, 262'144, 262'145, 3'000'001};
constexpr std::size_t small_chunks = 1 << 20;  ///< in bytes

class PeersOnCuda : public OnCuda {
 protected:
  PeersOnCuda() : OnCuda(StreamPriority::normal) {}

  void SetUp() override {
    OnCuda::SetUp();
    ranks.resize(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
  }

  Result<std::unique_ptr<Communicator>> open(std::size_t chunk_bytes = small_chunks) {
    EGT_TRY_ASSIGN(std::unique_ptr<Communicator> inner, open_nccl(*control));
    return open_peer_communicator(*device, *control, std::move(inner), ranks, chunk_bytes);
  }

  bool is_last() const { return rank == size - 1; }

  /// Milliseconds per call in the stream, over `times` calls; all ranks start together.
  template <typename Call>
  Result<double> time_ms(int times, Call&& call) {
    EGT_TRY_ASSIGN(const std::unique_ptr<Event> from, device->create_event(EventUse::timing));
    EGT_TRY_ASSIGN(const std::unique_ptr<Event> to, device->create_event(EventUse::timing));
    EGT_TRY(call());
    EGT_TRY(finish());
    EGT_TRY(control->barrier());
    EGT_TRY(device->record(*from, *stream));
    for (int i = 0; i < times; ++i) EGT_TRY(call());
    EGT_TRY(device->record(*to, *stream));
    EGT_TRY(finish());
    EGT_TRY_ASSIGN(const double all, device->elapsed_ms(*from, *to));
    return all / times;
  }

  std::vector<int> ranks;
};

TEST_F(PeersOnCuda, EveryRankWritesIntoTheMemoryOfEveryOther) {
  constexpr std::size_t each = 100'000;
  auto opened = PeerMemory::open(*device, *control, each * sizeof(int) * ranks.size(), ranks);
  ASSERT_OK(opened.status());
  PeerMemory& memory = *opened.value();
  std::vector<Buffer> sources;
  for (int peer = 0; peer < size; ++peer) {
    sources.push_back(upload(std::vector<int>(each, 100 * rank + peer)));
    ASSERT_OK(device->copy(memory.data(peer) + static_cast<std::size_t>(rank) * each * sizeof(int),
                           sources.back().data(), each * sizeof(int), *stream));
  }
  ASSERT_OK(finish());
  ASSERT_OK(control->barrier());
  const auto found = download<int>(memory.data(rank), each * ranks.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], static_cast<int>(i / each) * 100 + rank);
}

TEST_F(PeersOnCuda, AllReduceSumsFloatsInRankOrderAndEqualOnAllRanks) {
  auto communicator = open();
  ASSERT_OK(communicator.status());
  for (const std::size_t count : counts) {
    std::vector<float> mine(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = random_float(rank, i);
      expected[i] = random_float(0, i);
      for (int r = 1; r < size; ++r) expected[i] += random_float(r, i);
    }
    const Buffer data = upload(mine);
    ASSERT_OK(communicator.value()->all_reduce(data.data(), count, ElementType::f32, *stream));
    const auto found = download<float>(data.data(), count);
    EXPECT_TRUE(found == expected) << count;
    EXPECT_TRUE(equal_on_all_ranks(found)) << count;
    ASSERT_OK(communicator.value()->check());
  }
}

TEST_F(PeersOnCuda, AllReduceSumsBfloat16RoundedAfterEachTerm) {
  auto communicator = open();
  ASSERT_OK(communicator.status());
  for (const std::size_t count : counts) {
    std::vector<std::uint16_t> mine(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = to_bfloat16(random_float(rank, i)).bits;
      Bfloat16 sum = to_bfloat16(random_float(0, i));
      for (int r = 1; r < size; ++r) sum = math::add(sum, to_bfloat16(random_float(r, i)));
      expected[i] = sum.bits;
    }
    const Buffer data = upload(mine);
    ASSERT_OK(communicator.value()->all_reduce(data.data(), count, ElementType::bf16, *stream));
    const auto found = download<std::uint16_t>(data.data(), count);
    EXPECT_TRUE(found == expected) << count;
    EXPECT_TRUE(equal_on_all_ranks(found)) << count;
  }
}

TEST_F(PeersOnCuda, AHundredAllReducesOfRanksThatAreLateAtRandom) {
  auto communicator = open(1 << 18);
  ASSERT_OK(communicator.status());
  constexpr int rounds = 100;
  constexpr std::size_t count = 200'003;
  std::vector<Buffer> data;
  for (int round = 0; round < rounds; ++round) {
    std::vector<float> mine(count);
    for (std::size_t i = 0; i < count; ++i)
      mine[i] = static_cast<float>(static_cast<int>(i % 91) * (rank + 1) + round);
    data.push_back(upload(mine));
  }
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t random = mix64(static_cast<std::uint64_t>(round * 8 + rank));
    ASSERT_OK(communicator.value()->all_reduce(data[static_cast<std::size_t>(round)].data(), count,
                                               ElementType::f32, *stream));
    if (random % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random / 4 % 5000));
  }
  ASSERT_OK(finish());
  const int factor = size * (size + 1) / 2;
  for (int round = 0; round < rounds; ++round) {
    const auto found = download<float>(data[static_cast<std::size_t>(round)].data(), count);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i)
      wrong += found[i] != static_cast<float>(static_cast<int>(i % 91) * factor + round * size);
    ASSERT_EQ(wrong, 0u) << "round " << round;
  }
}

TEST_F(PeersOnCuda, AnAbortEndsTheWaitForARankThatDoesNotCome) {
  auto opened = open();
  ASSERT_OK(opened.status());
  const Buffer data = upload(std::vector<float>(1'000'000, 1.0f));
  if (!is_last()) {
    for (int i = 0; i < 3; ++i)
      ASSERT_OK(opened.value()->all_reduce(data.data(), 1'000'000, ElementType::f32, *stream));
    ASSERT_OK(opened.value()->check());
    ASSERT_OK(control->barrier());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    opened.value()->abort();
    EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
    EXPECT_EQ(opened.value()->check().code(), StatusCode::aborted);
    ASSERT_OK(device->forget_failure(*stream, stream_timeout_s));
  } else {
    ASSERT_OK(control->barrier());  // the other ranks have read it
  }
  ASSERT_OK(control->barrier());
  const StatusCode reported = is_last() ? StatusCode::timeout : StatusCode::aborted;
  EXPECT_EQ(opened.value()->check().code(), reported) << "also where the others gave up";
  if (is_last()) opened.value()->abort();
  auto another = open();
  ASSERT_OK(another.status());
  opened.value().reset();
  const Buffer ones = upload(std::vector<float>(5000, 1.0f));
  ASSERT_OK(another.value()->all_reduce(ones.data(), 5000, ElementType::f32, *stream));
  EXPECT_TRUE(download<float>(ones.data(), 5000) == std::vector<float>(5000, static_cast<float>(size)));
}

/// Prints rates for information; the asserted limits are far lower. Copies must not need host memory.
TEST_F(PeersOnCuda, CopiesAndSumsAreFast) {
  constexpr std::size_t bytes = std::size_t{1} << 30;
  auto opened = PeerMemory::open(*device, *control, bytes, ranks);
  ASSERT_OK(opened.status());
  const Buffer own = std::move(device->allocate(bytes).value());
  const int next = (rank + 1) % size;
  const auto copy_ms =
      time_ms(10, [&] { return device->copy(opened.value()->data(next), own.data(), bytes, *stream); });
  ASSERT_OK(agree(*control, copy_ms.status()));
  const VectorView sum{own.data(), ElementType::f32, static_cast<std::int64_t>(bytes / sizeof(float))};
  const VectorView term{opened.value()->data(rank), ElementType::f32, sum.count};
  const auto add_ms = time_ms(10, [&] { return device->add(sum, term, *stream); });
  ASSERT_OK(agree(*control, add_ms.status()));
  const double copied = static_cast<double>(bytes) / copy_ms.value() / 1e6;
  const double added = 3.0 * static_cast<double>(bytes) / add_ms.value() / 1e6;
  std::printf("rank %d: %.1f GB/s to its peer while all copy; add: %.1f GB/s read and written\n", rank,
              copied, added);
  EXPECT_GT(copied, 5.0);
  EXPECT_GT(added, 100.0);
}

TEST_F(PeersOnCuda, AllReduceBesideNccls) {
  auto nccl = open_nccl(*control);
  ASSERT_OK(nccl.status());
  auto peers = open(0);
  ASSERT_OK(peers.status());
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{240'000'000}}) {
    const Buffer data = std::move(device->allocate(bytes).value());
    ASSERT_OK(device->set_zero(data.data(), bytes, *stream));
    const auto time_of = [&](Communicator& communicator) {
      return time_ms(
          20, [&] { return communicator.all_reduce(data.data(), bytes / 2, ElementType::bf16, *stream); });
    };
    const auto nccl_ms = time_of(*nccl.value()), peers_ms = time_of(*peers.value());
    ASSERT_OK(agree(*control, nccl_ms.status()));
    ASSERT_OK(agree(*control, peers_ms.status()));
    const double factor = 2.0 * (size - 1) / size * static_cast<double>(bytes) / 1e6;
    if (rank == 0)
      std::printf("%9zu bytes: NCCL %.3f ms, %.1f GB/s bus bandwidth; peer copies %.3f ms, %.1f GB/s\n",
                  bytes, nccl_ms.value(), factor / nccl_ms.value(), peers_ms.value(),
                  factor / peers_ms.value());
    EXPECT_LT(peers_ms.value(), 20 * nccl_ms.value() + 5);
  }
}

}  // namespace
}  // namespace egt::test
