#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "device/host/host_device.hpp"
#include "device/host/host_stream.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"
#include "egt/ranks/agreement.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/peer/peer_communicator.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt::test {
namespace {

/// Zero, fewer than ranks, odd, one test chunk, one more, many chunks.
constexpr std::size_t counts[] = {0, 1, 3, 1001, 2048, 2049, 100'003};
constexpr std::size_t small_chunks = 8192;  ///< in bytes: a few thousand elements make several chunks

/// Random sign, fraction and magnitude (2^-20 to 2^20): sums of three or more depend on their order.
float random_float(int rank, std::size_t i) {
  const std::uint64_t h = mix64(static_cast<std::uint64_t>(rank) * 1000003 + i + 1);
  const float fraction = static_cast<float>(h >> 40) / 16777216.0f - 0.5f;
  return std::ldexp(fraction, static_cast<int>(h % 41) - 20);
}

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    const RankPlace& place = mpi_session().place();
    rank = place.rank;
    size = place.size;
    ranks.resize(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    auto opened_control = open_mpi_control(mpi_session(), timeout_s);
    ASSERT_OK(opened_control.status());
    control = std::move(opened_control.value());
    auto opened = open_host_device({.local_rank = place.local_rank,
                                    .local_size = place.local_size,
                                    .cores = 1,
                                    .memory_total_bytes = std::uint64_t{256} << 20});
    ASSERT_OK(opened.status());
    device = std::move(opened.value());
    auto made = device->create_stream(StreamPriority::normal);
    ASSERT_OK(made.status());
    stream = std::move(made.value());
  }

  Status finish(Stream& which) { return device->synchronize(which, timeout_s); }
  Status finish() { return finish(*stream); }

  Result<std::unique_ptr<Communicator>> open(std::size_t chunk_bytes = small_chunks) {
    auto inner = open_mpi_communicator(mpi_session(), timeout_s);
    EGT_TRY(agree(*control, inner.status()));
    return open_peer_communicator(*device, *control, std::move(inner.value()), ranks, chunk_bytes);
  }

  /// True if all ranks hold the same bytes. Only rank 0 compares; the other ranks return true.
  template <typename T>
  bool equal_on_all_ranks(const std::vector<T>& data) {
    const auto all =
        control->gather(std::string(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T)));
    return all.ok() && std::all_of(all.value().begin(), all.value().end(),
                                   [&](const std::string& one) { return one == all.value().front(); });
  }

  bool is_last() const { return rank == size - 1; }

  std::unique_ptr<Control> control;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::vector<int> ranks;
  int rank = 0, size = 1;
};

TEST_F(Peers, EveryRankWritesIntoTheMemoryOfEveryOther) {
  constexpr std::size_t each = 1000;
  auto opened = PeerMemory::open(*device, *control, each * sizeof(int) * ranks.size(), ranks);
  ASSERT_OK(opened.status());
  PeerMemory& memory = *opened.value();
  EXPECT_EQ(memory.index(), rank);
  EXPECT_EQ(memory.size(), size);
  for (int peer = 0; peer < size; ++peer) {
    const std::vector<int> mine(each, 100 * rank + peer);
    ASSERT_OK(device->copy(memory.data(peer) + static_cast<std::size_t>(rank) * each * sizeof(int),
                           mine.data(), each * sizeof(int), *stream));
    ASSERT_OK(finish());
  }
  ASSERT_OK(control->barrier());
  std::vector<int> found(each * ranks.size());
  ASSERT_OK(device->copy(found.data(), memory.data(rank), found.size() * sizeof(int), *stream));
  ASSERT_OK(finish());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], static_cast<int>(i / each) * 100 + rank);
}

TEST_F(Peers, MemoryIsOpenedByAllOrByNone) {
  const auto failed_alike = [&](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << status.what();
    EXPECT_FALSE(agree(*control, status).ok());
  };
  failed_alike(PeerMemory::open(*device, *control, 64, {size + 3}).status());
  if (size == 1) return;
  const std::size_t unlike = is_last() ? 128 : 64;
  failed_alike(PeerMemory::open(*device, *control, unlike, ranks).status());
  const std::vector<int> only_the_first = {0, 1};
  failed_alike(
      PeerMemory::open(*device, *control, 64, rank == 0 ? only_the_first : std::vector<int>{rank}).status());
  const auto too_much = PeerMemory::open(*device, *control, is_last() ? std::size_t{1} << 40 : 64, ranks);
  EXPECT_EQ(too_much.status().code(), StatusCode::out_of_memory);
  const auto alone =
      PeerMemory::open(*device, *control, 64, is_last() ? std::vector<int>{} : std::vector{rank});
  ASSERT_OK(alone.status());
  EXPECT_EQ(alone.value() == nullptr, is_last());
}

TEST_F(Peers, AllReduceSumsFloatsInRankOrderAndEqualOnAllRanks) {
  auto communicator = open();
  ASSERT_OK(communicator.status());
  for (const std::size_t count : counts) {
    std::vector<float> data(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = random_float(rank, i);
      expected[i] = random_float(0, i);
      for (int r = 1; r < size; ++r) expected[i] += random_float(r, i);
    }
    ASSERT_OK(communicator.value()->all_reduce(data.data(), count, ElementType::f32, *stream));
    ASSERT_OK(finish());
    EXPECT_TRUE(data == expected) << count;
    EXPECT_TRUE(equal_on_all_ranks(data)) << count;
    ASSERT_OK(communicator.value()->check());
  }
}

TEST_F(Peers, AllReduceSumsBfloat16RoundedAfterEachTerm) {
  auto communicator = open();
  ASSERT_OK(communicator.status());
  for (const std::size_t count : counts) {
    std::vector<Bfloat16> data(count);
    std::vector<std::uint16_t> expected(count), found(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = to_bfloat16(random_float(rank, i));
      Bfloat16 sum = to_bfloat16(random_float(0, i));
      for (int r = 1; r < size; ++r) sum = math::add(sum, to_bfloat16(random_float(r, i)));
      expected[i] = sum.bits;
    }
    ASSERT_OK(communicator.value()->all_reduce(data.data(), count, ElementType::bf16, *stream));
    ASSERT_OK(finish());
    std::transform(data.begin(), data.end(), found.begin(), [](Bfloat16 one) { return one.bits; });
    EXPECT_TRUE(found == expected) << count;
    EXPECT_TRUE(equal_on_all_ranks(found)) << count;
  }
}

TEST_F(Peers, WhatIsSummedIsWhatTheStreamMadeBefore) {
  auto communicator = open();
  ASSERT_OK(communicator.status());
  std::vector<float> data(5000, -1.0f), result(data.size());
  as_host_stream(*stream).enqueue([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    std::fill(data.begin(), data.end(), 1.0f);
    return Status();
  });
  ASSERT_OK(communicator.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
  ASSERT_OK(device->copy(result.data(), data.data(), data.size() * sizeof(float), *stream));
  ASSERT_OK(finish());
  EXPECT_TRUE(result == std::vector<float>(data.size(), static_cast<float>(size)));
}

/// Ranks run several all-reduces ahead of each other in two streams, with random delays.
TEST_F(Peers, AHundredAllReducesOfRanksThatAreLateAtRandom) {
  auto communicator = open(4096);
  ASSERT_OK(communicator.status());
  auto made = device->create_stream(StreamPriority::low);
  ASSERT_OK(made.status());
  std::mt19937 random(static_cast<unsigned>(rank) + 7);
  constexpr int rounds = 100;
  std::vector<std::vector<float>> data;
  for (int round = 0; round < rounds; ++round) {
    auto& mine = data.emplace_back(1 + static_cast<std::size_t>(round * 137 % 9001));
    for (std::size_t i = 0; i < mine.size(); ++i)
      mine[i] = static_cast<float>(static_cast<int>(i % 91) * (rank + 1) + round);
    Stream& in = round % 3 == 2 ? *made.value() : *stream;
    ASSERT_OK(communicator.value()->all_reduce(mine.data(), mine.size(), ElementType::f32, in));
    if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
    if (random() % 16 == 0) ASSERT_OK(finish(in));
  }
  ASSERT_OK(finish());
  ASSERT_OK(finish(*made.value()));
  const int factor = size * (size + 1) / 2;
  for (int round = 0; round < rounds; ++round) {
    const auto& found = data[static_cast<std::size_t>(round)];
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], static_cast<float>(static_cast<int>(i % 91) * factor + round * size))
          << "round " << round << ", element " << i;
  }
}

TEST_F(Peers, EverythingElseIsTheOtherCommunicators) {
  auto opened = open();
  ASSERT_OK(opened.status());
  Communicator& communicator = *opened.value();
  EXPECT_EQ(communicator.rank(), rank);
  EXPECT_EQ(communicator.size(), size);
  std::vector<int> all(ranks.size(), -1);
  int from_root = rank;
  ASSERT_OK(communicator.all_gather(&rank, all.data(), sizeof(int), *stream));
  ASSERT_OK(communicator.broadcast(&from_root, sizeof(int), size - 1, *stream));
  ASSERT_OK(finish());
  EXPECT_EQ(all, ranks);
  EXPECT_EQ(from_root, size - 1);
  double number = 1;
  EXPECT_EQ(communicator.all_reduce(&number, 1, ElementType::f64, *stream).code(),
            StatusCode::invalid_argument);
  communicator.interrupt();
  EXPECT_EQ(communicator.check().code(), StatusCode::aborted);
  float value = 1;
  EXPECT_EQ(communicator.all_reduce(&value, 1, ElementType::f32, *stream).code(), StatusCode::aborted);
}

TEST_F(Peers, ARankWhoseCommunicatorHasFailedFailsAll) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto inner = open_mpi_communicator(mpi_session(), 0.5);
  ASSERT_OK(agree(*control, inner.status()));
  if (is_last()) inner.value()->abort();
  const Status status =
      open_peer_communicator(*device, *control, std::move(inner.value()), ranks, small_chunks).status();
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(agree(*control, status).ok());
}

TEST_F(Peers, ACommunicatorOfSomeRanksLeavesTheOthersOut) {
  if (size < 3) GTEST_SKIP() << "needs three ranks";
  auto whole = open_mpi_communicator(mpi_session(), timeout_s);
  ASSERT_OK(agree(*control, whole.status()));
  auto inner = whole.value()->split(rank == 0 ? -1 : 1);
  ASSERT_OK(agree(*control, inner.status()));
  const std::vector<int> members(ranks.begin() + 1, ranks.end());
  auto opened = open_peer_communicator(*device, *control, std::move(inner.value()),
                                       rank == 0 ? std::vector<int>{} : members, small_chunks);
  ASSERT_OK(opened.status());
  EXPECT_EQ(opened.value() == nullptr, rank == 0);
  if (rank != 0) {
    std::vector<float> data(5000, static_cast<float>(rank));
    ASSERT_OK(opened.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
    ASSERT_OK(finish());
    EXPECT_TRUE(data == std::vector<float>(5000, static_cast<float>(size * (size - 1) / 2)));
  }
  ASSERT_OK(control->barrier());
}

TEST_F(Peers, RequestsThatDoNotFitAreRefusedOnAllRanks) {
  const auto refused = [&](std::size_t chunk_bytes, const std::vector<int>& members) {
    auto inner = open_mpi_communicator(mpi_session(), timeout_s);
    EXPECT_TRUE(agree(*control, inner.status()).ok());
    const Status status =
        open_peer_communicator(*device, *control, std::move(inner.value()), members, chunk_bytes).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << status.what();
  };
  refused(0, {});
  if (size == 1) return;
  refused(is_last() ? 4096 : 8192, ranks);
  refused(0, {ranks.rbegin(), ranks.rend()});
}

TEST_F(Peers, AnAbortEndsTheWaitForARankThatDoesNotCome) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open();
  ASSERT_OK(opened.status());
  std::vector<float> data(20'000, 1.0f);
  if (!is_last()) {
    for (int i = 0; i < 3; ++i)
      ASSERT_OK(opened.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
    ASSERT_OK(opened.value()->check());
    ASSERT_OK(control->barrier());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::thread([&] { opened.value()->abort(); }).join();
    EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
    EXPECT_EQ(opened.value()->check().code(), StatusCode::aborted);
    ASSERT_OK(device->forget_failure(*stream, timeout_s));
  } else {
    ASSERT_OK(control->barrier());  // the other ranks have read it
  }
  ASSERT_OK(control->barrier());
  const StatusCode reported = is_last() ? StatusCode::timeout : StatusCode::aborted;
  EXPECT_EQ(opened.value()->check().code(), reported) << "also where the others gave up";
  const Clock::time_point start = Clock::now();
  auto another = open();
  ASSERT_OK(another.status());
  opened.value().reset();
  std::fill(data.begin(), data.end(), 1.0f);
  ASSERT_OK(another.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
  ASSERT_OK(finish());
  EXPECT_TRUE(data == std::vector<float>(data.size(), static_cast<float>(size)));
  EXPECT_LT(seconds_since(start), PeerMemory::leave_seconds);
}

/// As at a restart: the run's communicator, which does not know about peer copies, is aborted.
TEST_F(Peers, TheEndOfWhatTheInnerOneWasSplitFromEndsTheWaitOfWhoLooks) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto whole = open_mpi_communicator(mpi_session(), timeout_s);
  ASSERT_OK(agree(*control, whole.status()));
  auto inner = whole.value()->split(0);
  ASSERT_OK(agree(*control, inner.status()));
  auto opened = open_peer_communicator(*device, *control, std::move(inner.value()), ranks, small_chunks);
  ASSERT_OK(opened.status());
  std::vector<float> data(20'000, 1.0f);
  if (!is_last()) ASSERT_OK(opened.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
  ASSERT_OK(control->barrier());
  whole.value()->interrupt();
  EXPECT_EQ(opened.value()->check().code(), StatusCode::aborted);
  EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
  ASSERT_OK(control->barrier());
}

TEST_F(Peers, WhoIsToldThatAPeerHasGivenUpWaitsNoLonger) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open();
  ASSERT_OK(opened.status());
  std::vector<float> data(2000, 1.0f);
  for (int i = 0; i < (rank == 0 ? 1 : 2); ++i)
    ASSERT_OK(opened.value()->all_reduce(data.data(), data.size(), ElementType::f32, *stream));
  ASSERT_OK(control->barrier());
  if (rank == 0) opened.value()->abort();
  ASSERT_OK(control->barrier());
  EXPECT_EQ(opened.value()->check().code(), rank == 0 ? StatusCode::aborted : StatusCode::timeout);
  EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
  ASSERT_OK(control->barrier());
}

}  // namespace
}  // namespace egt::test
