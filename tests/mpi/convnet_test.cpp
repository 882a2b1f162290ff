// Convolutional networks with gradient all-reduce.
#include <cstring>

#include "device/host/onednn/host_dnn.hpp"
#include "loadtest/convnet/conv_net.hpp"
#include "loadtest/images/image_set.hpp"
#include "ranks_on_host.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt::test {
namespace {

constexpr std::int64_t batch = 4;

class ConvNetOnRanks : public RanksOnHost {
 protected:
  void SetUp() override {
    RanksOnHost::SetUp();
    if (!device) return;
    auto opened = open_host_dnn(*device);
    if (opened.status().code() == StatusCode::unavailable) GTEST_SKIP() << opened.status().what();
    ASSERT_OK(opened.status());
    dnn = std::move(opened.value());
  }

  std::unique_ptr<ConvNet> make(NetworkKind kind, Communicator& communicator, bool sums) {
    auto made =
        ConvNet::create(*device, *dnn, communicator,
                        {.kind = kind, .batch = batch, .pixels = 32, .classes = 8, .sums = sums, .seed = 4});
    EXPECT_TRUE(made.ok()) << made.status().what();
    return std::move(made.value());
  }
  /// A step with this rank's images; on the host backend, device memory is host memory.
  void train(ConvNet& net, std::uint64_t step) {
    const GeneratedImages set(2, 32, 8);
    auto* const pixels = static_cast<float*>(net.images().data);
    for (std::int64_t i = 0; i < batch; ++i)
      ASSERT_OK(set.make({.step = step, .rank = rank(), .ranks = size(), .images = batch}, i,
                         pixels + i * set.values(), net.labels() + i, {}));
    ASSERT_OK(net.enqueue_training());
    ASSERT_OK(device->synchronize(net.stream(), timeout_s));
  }
  /// Values of every rank.
  std::vector<float> gather(WordsView words) {
    const std::size_t bytes = words.bytes();
    Buffer all = std::move(device->allocate(bytes * static_cast<std::size_t>(size())).value());
    auto stream = std::move(device->create_stream(StreamPriority::normal).value());
    EXPECT_TRUE(real->all_gather(words.data, all.data(), bytes, *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
    return {all.as<float>(), all.as<float>() + words.count * static_cast<std::size_t>(size())};
  }

  std::unique_ptr<Dnn> dnn;
};

TEST_F(ConvNetOnRanks, GradientsAreTheMeanOfAllRanksAndWeightsStayAlike) {
  SingleRankCommunicator single(*device);
  for (const NetworkKind kind : {NetworkKind::simple_cnn, NetworkKind::resnet18}) {
    if (kind == NetworkKind::resnet18 && size() > 2)
      continue;  // the gradient's size adds nothing to its mean
    const auto together = make(kind, *real, true), alone = make(kind, single, false);
    if (!together || !alone) return;
    train(*together, 0);
    train(*alone, 0);
    const std::size_t count = alone->gradient().count;
    const std::vector<float> all = gather(alone->gradient());
    const auto* const summed = reinterpret_cast<const float*>(together->gradient().data);
    double wrong = 0, length = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double mean = 0;
      for (int r = 0; r < size(); ++r) mean += all[static_cast<std::size_t>(r) * count + i];
      mean /= size();
      wrong += (summed[i] - mean) * (summed[i] - mean);
      length += mean * mean;
    }
    EXPECT_LT(wrong, 1e-10 * length) << to_string(kind);
    for (std::uint64_t step = 1; step < 4; ++step) train(*together, step);
    for (const WordsView words : {together->weights(), together->velocity()}) {
      const std::vector<float> everywhere = gather(words);
      for (int r = 1; r < size(); ++r)
        EXPECT_EQ(
            0, std::memcmp(everywhere.data(), everywhere.data() + static_cast<std::size_t>(r) * words.count,
                           words.bytes()))
            << to_string(kind) << ", rank " << r;
    }
  }
}

}  // namespace
}  // namespace egt::test
