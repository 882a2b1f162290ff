#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "device/host/host_device.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "workload/bench/bench_operation.hpp"
#include "workload/bench/input_pipeline.hpp"

/// Batches that move from the first rank to all others: each rank must get its own, in order, and none left
/// over.
namespace egt::test {
namespace {

constexpr std::size_t stride = 1024;  // in bytes

std::uint32_t word_of(int generation, std::size_t place) {
  return static_cast<std::uint32_t>(generation + 1) * 0x10001u + static_cast<std::uint32_t>(place);
}

/// An iteration and a copy of the data that the device processed.
struct Used {
  std::int64_t iteration;
  Buffer copy;
};

class BenchFeeds : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    const RankPlace& place = mpi_session().place();
    device_ = std::move(
        open_host_device(
            {.local_rank = place.rank, .local_size = place.size, .cores = 1, .memory_total_bytes = 64u << 20})
            .value());
    control_ = std::move(open_mpi_control(mpi_session(), timeout_s).value());
    communicator_ = std::move(open_mpi_communicator(mpi_session(), timeout_s).value());
    stream_ = std::move(device_->create_stream(StreamPriority::normal).value());
    shape_.index = place.rank;
    shape_.devices = place.size;
    shape_.per_delivery = GetParam();
    shape_.stride = stride;
    // Different sizes: a slower device gets less.
    for (int device = 0; device < place.size; ++device)
      shape_.bytes.push_back(stride - 16 * static_cast<std::size_t>(device));
  }

  InputPipeline::MakeInput maker() {
    return [this](int generation, std::byte* input, Stream& stream) -> Status {
      EGT_TRY_ASSIGN(const Buffer words, device_->allocate_pinned(stride));
      for (std::size_t i = 0; i < stride / 4; ++i) words.as<std::uint32_t>()[i] = word_of(generation, i);
      EGT_TRY(device_->copy(input, words.data(), stride, stream));
      return device_->synchronize(stream, timeout_s);
    };
  }

  /// Runs as a job does, with a device that may be slow.
  Status run(InputPipeline& feed, std::int64_t first, std::int64_t iterations, std::vector<Used>& used) {
    const std::int64_t deliveries = (first + iterations) / shape_.per_delivery;
    EGT_TRY(feed.deliver(first / shape_.per_delivery));
    for (std::int64_t i = first; i < first + iterations; ++i) {
      const std::int64_t delivery = i / shape_.per_delivery;
      if (i % shape_.per_delivery == 0) {
        if (delivery + 1 < deliveries) EGT_TRY(feed.deliver(delivery + 1));
        EGT_TRY(feed.ready(delivery, *stream_));
      }
      EGT_TRY_ASSIGN(Buffer copy, device_->allocate(stride));
      if (shape_.index % 2 == 1)
        EGT_TRY(device_->sine_exponential({copy.as<std::uint32_t>(), 64}, 200, copy.as<Digest>(), *stream_));
      EGT_TRY(device_->copy(copy.data(), feed.input(i), shape_.bytes[static_cast<std::size_t>(shape_.index)],
                            *stream_));
      used.push_back({i, std::move(copy)});
      if ((i + 1) % shape_.per_delivery == 0) EGT_TRY(feed.release(delivery, *stream_));
    }
    EGT_TRY(device_->synchronize(*stream_, timeout_s));
    return feed.stream() != nullptr ? device_->synchronize(*feed.stream(), timeout_s) : Status();
  }

  /// Two runs as two bursts.
  void check(InputPipeline& feed) {
    std::vector<Used> used;
    ASSERT_OK(run(feed, 0, 10 * shape_.per_delivery, used));
    ASSERT_OK(control_->barrier());
    ASSERT_OK(run(feed, 10 * shape_.per_delivery, 7 * shape_.per_delivery, used));
    const std::size_t words = shape_.bytes[static_cast<std::size_t>(shape_.index)] / 4;
    for (const Used& one : used) {
      const int generation = static_cast<int>((one.iteration + shape_.index) % BenchOperation::generations);
      for (std::size_t i = 0; i < words; ++i)
        ASSERT_EQ(one.copy.as<std::uint32_t>()[i], word_of(generation, i))
            << "rank " << shape_.index << ", iteration " << one.iteration << ", word " << i;
    }
    ASSERT_OK(control_->barrier());
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Control> control_;
  std::unique_ptr<Communicator> communicator_;
  std::unique_ptr<Stream> stream_;
  FeedShape shape_;
};

TEST_P(BenchFeeds, ByTheCommunicator) {
  auto feed = make_exchange_feed(*device_, *communicator_, shape_, maker());
  ASSERT_OK(feed.status());
  EXPECT_EQ(feed.value()->is_moved(), shape_.index > 0);
  check(*feed.value());
}

TEST_P(BenchFeeds, ByCopiesToThePeers) {
  std::vector<int> members(static_cast<std::size_t>(shape_.devices));
  std::iota(members.begin(), members.end(), 0);
  auto memory = PeerMemory::open(*device_, *control_, peer_feed_bytes(stride, shape_.per_delivery), members);
  ASSERT_OK(memory.status());
  for (int trial = 0; trial < 2; ++trial) {
    auto feed = make_peer_feed(*device_, *communicator_, *memory.value(), shape_, maker());
    ASSERT_OK(feed.status());
    check(*feed.value());
  }
}

INSTANTIATE_TEST_SUITE_P(BatchesTogether, BenchFeeds, ::testing::Values(1, 2, 4),
                         [](const auto& info) { return fmt::format("of{}", info.param); });

}  // namespace
}  // namespace egt::test
