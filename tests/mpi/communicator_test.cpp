#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "device/host/host_device.hpp"
#include "device/host/host_stream.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"
#include "exchange_contract.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#include "ranks/mpi/mpi_control.hpp"

namespace egt::test {
namespace {

/// Zero, fewer than ranks, odd, one chunk and more, several chunks.
constexpr std::size_t counts[] = {0, 1, 3, 1001, 262144, 262147, 1500001};

/// Random sign, fraction and magnitude (2^-20 to 2^20): sums of three or more depend on their order.
float random_float(int rank, std::size_t i) {
  const std::uint64_t h = mix64(static_cast<std::uint64_t>(rank) * 1000003 + i + 1);
  const float fraction = static_cast<float>(h >> 40) / 16777216.0f - 0.5f;
  return std::ldexp(fraction, static_cast<int>(h % 41) - 20);
}

class Communicator : public testing::Test {
 protected:
  void SetUp() override {
    auto opened_control = open_mpi_control(mpi_session(), 10);
    ASSERT_OK(opened_control.status());
    control = std::move(opened_control.value());
    auto opened = open_mpi_communicator(mpi_session(), 10);
    ASSERT_OK(opened.status());
    communicator = std::move(opened.value());
    rank = communicator->rank();
    size = communicator->size();
  }

  Status finish() {
    if (!stream.wait_idle(20)) return {StatusCode::timeout, "the stream did not come to its end"};
    return stream.status();
  }

  /// True if all ranks hold the same bytes. Only rank 0 compares; the other ranks return true.
  bool equal_on_all_ranks(const void* data, std::size_t bytes) {
    const auto all = control->gather(std::string(static_cast<const char*>(data), bytes));
    if (!all.ok()) return false;
    for (const std::string& one : all.value())
      if (one != all.value().front()) return false;
    return true;
  }

  std::unique_ptr<Control> control;
  std::unique_ptr<egt::Communicator> communicator;
  std::unique_ptr<HostStream> owned_stream = std::move(HostStream::create(StreamPriority::high, 1).value());
  HostStream& stream = *owned_stream;
  int rank = 0, size = 1;
};

TEST_F(Communicator, AllReduceSumsFloatsInRankOrderAndEqualOnAllRanks) {
  for (const std::size_t count : counts) {
    std::vector<float> data(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = random_float(rank, i);
      expected[i] = random_float(0, i);
      for (int r = 1; r < size; ++r) expected[i] += random_float(r, i);
    }
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::f32, stream));
    ASSERT_OK(finish());
    EXPECT_TRUE(data == expected) << count;
    EXPECT_TRUE(equal_on_all_ranks(data.data(), count * sizeof(float))) << count;
  }
}

TEST_F(Communicator, AllReduceSumsBfloat16AndRoundsOnce) {
  for (const std::size_t count : counts) {
    std::vector<Bfloat16> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = to_bfloat16(random_float(rank, i));
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::bf16, stream));
    ASSERT_OK(finish());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float expected = to_float(to_bfloat16(random_float(0, i)));
      for (int r = 1; r < size; ++r) expected += to_float(to_bfloat16(random_float(r, i)));
      wrong += data[i].bits != to_bfloat16(expected).bits;
    }
    EXPECT_EQ(wrong, 0u) << count;
    EXPECT_TRUE(equal_on_all_ranks(data.data(), count * sizeof(Bfloat16))) << count;
  }
}

TEST_F(Communicator, ReduceScatterSumsFloatsInRankOrderAlsoInPlace) {
  for (const bool in_place : {false, true})
    for (const std::size_t count : counts) {
      const auto ranks = static_cast<std::size_t>(size), first = static_cast<std::size_t>(rank) * count;
      std::vector<float> mine(count * ranks), expected(count), apart(in_place ? 0 : count);
      for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = random_float(rank, i);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = random_float(0, first + i);
        for (int r = 1; r < size; ++r) expected[i] += random_float(r, first + i);
      }
      float* const sums = in_place ? mine.data() + first : apart.data();
      ASSERT_OK(communicator->reduce_scatter(mine.data(), sums, count, ElementType::f32, stream));
      ASSERT_OK(finish());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), sums)) << count;
    }
}

TEST_F(Communicator, ReduceScatterSumsBfloat16AndRoundsOnce) {
  constexpr std::size_t count = 70001;
  const std::size_t first = static_cast<std::size_t>(rank) * count;
  std::vector<Bfloat16> mine(count * static_cast<std::size_t>(size)), sums(count);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = to_bfloat16(random_float(rank, i));
  ASSERT_OK(communicator->reduce_scatter(mine.data(), sums.data(), count, ElementType::bf16, stream));
  ASSERT_OK(finish());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float expected = to_float(to_bfloat16(random_float(0, first + i)));
    for (int r = 1; r < size; ++r) expected += to_float(to_bfloat16(random_float(r, first + i)));
    wrong += sums[i].bits != to_bfloat16(expected).bits;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Communicator, SumsAreMadeOfNoOtherType) {
  double value = 1;
  EXPECT_EQ(communicator->reduce_scatter(&value, &value, 1, ElementType::f64, stream).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(communicator->all_reduce(&value, 1, ElementType::f64, stream).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(communicator->broadcast(&value, 8, size, stream).code(), StatusCode::invalid_argument);
}

TEST_F(Communicator, BroadcastFromEveryRoot) {
  for (int root = 0; root < size; ++root)
    for (const std::size_t bytes : counts) {
      std::vector<std::uint8_t> data(bytes), expected(bytes);
      for (std::size_t i = 0; i < bytes; ++i) {
        expected[i] = static_cast<std::uint8_t>(mix64(i + static_cast<std::size_t>(root)));
        if (rank == root) data[i] = expected[i];
      }
      ASSERT_OK(communicator->broadcast(data.data(), bytes, root, stream));
      ASSERT_OK(finish());
      EXPECT_TRUE(data == expected) << bytes << " from " << root;
    }
}

TEST_F(Communicator, AllGatherInRankOrder) {
  for (const std::size_t bytes : counts) {
    std::vector<std::uint8_t> mine(bytes), all(bytes * static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < bytes; ++i)
      mine[i] = static_cast<std::uint8_t>(mix64(i) + static_cast<unsigned>(rank));
    ASSERT_OK(communicator->all_gather(mine.data(), all.data(), bytes, stream));
    ASSERT_OK(finish());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      wrong += all[i] != static_cast<std::uint8_t>(mix64(i % bytes) + i / bytes);
    EXPECT_EQ(wrong, 0u) << bytes;
  }
}

TEST_F(Communicator, CollectivesOfTwoStreamsDoNotMix) {
  const auto owned_other = std::move(HostStream::create(StreamPriority::low, 1).value());
  HostStream& other = *owned_other;
  std::vector<float> a(300000, 1.0f), b(300000, 2.0f);
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(communicator->all_reduce(a.data(), a.size(), ElementType::f32, stream));
    ASSERT_OK(communicator->all_reduce(b.data(), b.size(), ElementType::f32, other));
  }
  ASSERT_OK(finish());
  ASSERT_TRUE(other.wait_idle(20));
  ASSERT_OK(other.status());
  const float grown = std::pow(static_cast<float>(size), 5.0f);
  EXPECT_TRUE(a == std::vector<float>(a.size(), grown));
  EXPECT_TRUE(b == std::vector<float>(b.size(), 2 * grown));
}

/// This test and the next leave a collective without its peer; MPI_Finalize must not hang.
TEST_F(Communicator, AMissingPeerIsATimeoutWithinTheDeadline) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open_mpi_communicator(mpi_session(), 0.5);
  ASSERT_OK(opened.status());
  static std::vector<float> data(1 << 20, 1.0f);  // MPI may keep unfinished operations until it is finalized
  if (rank == 0) {
    ASSERT_OK(opened.value()->all_reduce(data.data(), data.size(), ElementType::f32, stream));
    EXPECT_EQ(finish().code(), StatusCode::timeout);
    EXPECT_EQ(opened.value()->check().code(), StatusCode::timeout);
    EXPECT_FALSE(opened.value()->all_reduce(data.data(), 1, ElementType::f32, stream).ok());
  }
  ASSERT_OK(control->barrier());
}

TEST_F(Communicator, AbortEndsWhatIsUnderWayAtOnce) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  static std::vector<float> data(1 << 20, 1.0f);
  if (rank == 0) {
    ASSERT_OK(communicator->all_reduce(data.data(), data.size(), ElementType::f32, stream));
    ASSERT_OK(communicator->all_reduce(data.data(), data.size(), ElementType::f32, stream));
    ASSERT_OK(communicator->check());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::thread([&] { communicator->abort(); }).join();
    EXPECT_EQ(finish().code(), StatusCode::aborted);
    EXPECT_EQ(communicator->check().code(), StatusCode::aborted);
  }
  ASSERT_OK(control->barrier());
  // A new communicator works, whatever the state of the old one.
  auto opened = open_mpi_communicator(mpi_session(), 10);
  ASSERT_OK(opened.status());
  const auto owned_fresh = std::move(HostStream::create(StreamPriority::high, 1).value());
  HostStream& fresh = *owned_fresh;
  std::vector<float> ones(1000, 1.0f);
  ASSERT_OK(opened.value()->all_reduce(ones.data(), ones.size(), ElementType::f32, fresh));
  ASSERT_TRUE(fresh.wait_idle(20));
  ASSERT_OK(fresh.status());
  EXPECT_TRUE(ones == std::vector<float>(1000, static_cast<float>(size)));
}

INSTANTIATE_TEST_SUITE_P(Mpi, ExchangeContract,
                         testing::Values(RanksUnderTest{
                             .name = "host",
                             .open_device = [](const RankPlace&) { return open_host_device_of_rank(); },
                             .open = [](egt::Control&) { return open_mpi_communicator(mpi_session(), 10); }}),
                         name_of);

/// Message bytes: each value depends on its position.
std::vector<std::byte> letter_of(std::size_t bytes) {
  std::vector<std::byte> letter(bytes);
  for (std::size_t i = 0; i < bytes; ++i) letter[i] = static_cast<std::byte>(mix64(i));
  return letter;
}

TEST_F(Communicator, ALatePeerHoldsUpItsOwnMessagesOnly) {
  if (size < 3) GTEST_SKIP() << "needs three ranks";
  constexpr std::size_t bytes = 9'000'001;
  const std::vector<std::byte> sent = letter_of(bytes);
  std::vector<std::byte> got(bytes);
  const auto receive = [&] {
    const Message message{got.data(), bytes, 0};
    return communicator->exchange({}, {&message, 1}, stream);
  };
  if (rank == 0) {
    std::vector<Message> messages;
    for (const int peer : {2, 1}) messages.push_back({const_cast<std::byte*>(sent.data()), bytes, peer});
    ASSERT_OK(communicator->exchange(messages, {}, stream));
  } else if (rank == 1) {
    ASSERT_OK(receive());
    ASSERT_OK(finish());
    EXPECT_TRUE(got == sent);
  }
  ASSERT_OK(control->barrier());
  if (rank == 2) {
    ASSERT_OK(receive());
    ASSERT_OK(finish());
    EXPECT_TRUE(got == sent);
  }
  ASSERT_OK(finish());
}

/// Two exchanges in a ring on two streams: on rank 0 the second one runs first.
class InAnotherOrder : public Communicator {
 protected:
  void expect_unmixed(egt::Communicator& first, egt::Communicator& second) {
    constexpr std::size_t bytes = 300'000;
    const auto owned_other = std::move(HostStream::create(StreamPriority::low, 1).value());
    HostStream& other = *owned_other;
    std::vector<std::byte> sent[2] = {letter_of(bytes), letter_of(bytes)};
    std::reverse(sent[1].begin(), sent[1].end());
    std::vector<std::byte> got[2] = {std::vector<std::byte>(bytes), std::vector<std::byte>(bytes)};
    const Message out[2] = {{sent[0].data(), bytes, (rank + 1) % size},
                            {sent[1].data(), bytes, (rank + 1) % size}};
    const Message in[2] = {{got[0].data(), bytes, (rank + size - 1) % size},
                           {got[1].data(), bytes, (rank + size - 1) % size}};
    std::atomic<bool> second_over{false};
    if (rank == 0)
      stream.enqueue([&] {
        while (!second_over) std::this_thread::yield();
        return Status();
      });
    const Status begun[2] = {first.exchange({&out[0], 1}, {&in[0], 1}, stream),
                             second.exchange({&out[1], 1}, {&in[1], 1}, other)};
    EXPECT_TRUE(begun[0].ok() && begun[1].ok());
    EXPECT_TRUE(other.wait_idle(20));
    second_over = true;
    ASSERT_OK(other.status());
    ASSERT_OK(finish());
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(got[i] == sent[i]) << i;
  }
};

TEST_F(InAnotherOrder, ExchangesOfOneCommunicatorDoNotMix) {
  expect_unmixed(*communicator, *communicator);
}

TEST_F(InAnotherOrder, ExchangesOfACommunicatorAndWhatWasSplitFromItDoNotMix) {
  auto split = communicator->split(0);
  ASSERT_OK(split.status());
  expect_unmixed(*communicator, *split.value());
}

TEST_F(InAnotherOrder, ExchangesOfTwoSplitsDoNotMix) {
  auto split = communicator->split(0), another = communicator->split(0);
  ASSERT_OK(split.status());
  ASSERT_OK(another.status());
  expect_unmixed(*another.value(), *split.value());
}

TEST_F(Communicator, AnExchangeWithoutItsPeerIsATimeoutWithinTheDeadline) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open_mpi_communicator(mpi_session(), 0.5);
  ASSERT_OK(opened.status());
  static std::vector<std::byte> data(8 << 20);  // MPI may keep unfinished operations until it is finalized
  if (rank == 0) {
    const Message message{data.data(), data.size(), 1};
    ASSERT_OK(opened.value()->exchange({&message, 1}, {}, stream));
    EXPECT_EQ(finish().code(), StatusCode::timeout);
    EXPECT_EQ(opened.value()->check().code(), StatusCode::timeout);
  }
  ASSERT_OK(control->barrier());
}

TEST_F(Communicator, ASplitWithoutAPeerIsATimeoutWithinTheDeadline) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open_mpi_communicator(mpi_session(), 0.5);
  ASSERT_OK(opened.status());
  if (rank == 0) {
    EXPECT_EQ(opened.value()->split(0).status().code(), StatusCode::timeout);
    EXPECT_EQ(opened.value()->check().code(), StatusCode::timeout);
  }
  ASSERT_OK(control->barrier());
}

TEST_F(Communicator, AnInterruptEndsASplitThatWaitsForAPeer) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  if (rank == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      communicator->interrupt();
    });
    EXPECT_EQ(communicator->split(0).status().code(), StatusCode::aborted);
    other.join();
  }
  ASSERT_OK(control->barrier());
}

TEST_F(Communicator, ManySplitsOneAfterTheOther) {
  for (int i = 0; i < 200; ++i) {
    auto split = communicator->split(rank % 2 == i % 2 ? 1 : -1);
    ASSERT_OK(split.status());
    if (!split.value()) continue;
    float one = 1;
    ASSERT_OK(split.value()->all_reduce(&one, 1, ElementType::f32, stream));
    ASSERT_OK(finish());
    ASSERT_EQ(one, static_cast<float>(split.value()->size())) << i;
  }
}

}  // namespace
}  // namespace egt::test
