// Convolutional networks on a GPU compared with the same networks on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_dnn.hpp"
#include "device/host/host_device.hpp"
#include "device/host/onednn/host_dnn.hpp"
#include "loadtest/convnet/conv_net.hpp"
#include "loadtest/images/image_set.hpp"
#include "tests/support/single_rank_communicator.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 120;

/// A network on a device; the images are the same on every device.
struct Network {
  Network(Result<std::unique_ptr<Device>> opened, Result<std::unique_ptr<Dnn>> (*open_dnn)(Device&))
      : device(std::move(opened.value())), communicator(*device), library(open_dnn(*device)) {}

  Status make(const ConvNetConfig& config) {
    net.reset();
    EGT_TRY(library.status());
    EGT_TRY_ASSIGN(net, ConvNet::create(*device, *library.value(), communicator, config));
    const GeneratedImages set(1, config.pixels);
    const auto values = static_cast<std::size_t>(set.values()),
               batch = static_cast<std::size_t>(config.batch);
    EGT_TRY_ASSIGN(const Buffer host, device->allocate_pinned(batch * (values + 1) * sizeof(float)));
    auto* const labels = reinterpret_cast<std::int32_t*>(host.as<float>() + batch * values);
    for (std::size_t i = 0; i < batch; ++i)
      EGT_TRY(set.make({.images = config.batch}, static_cast<std::int64_t>(i), host.as<float>() + i * values,
                       labels + i, {}));
    EGT_TRY(device->copy(net->images().data, host.data(), batch * values * sizeof(float), net->stream()));
    EGT_TRY(device->copy(net->labels(), labels, batch * sizeof(std::int32_t), net->stream()));
    return device->synchronize(net->stream(), timeout_s);
  }

  std::vector<float> read(const void* from, std::size_t count) {
    const Buffer pinned = std::move(device->allocate_pinned(count * sizeof(float)).value());
    EXPECT_TRY(device->copy(pinned.data(), from, count * sizeof(float), net->stream()));
    EXPECT_TRY(device->synchronize(net->stream(), timeout_s));
    return {pinned.as<float>(), pinned.as<float>() + count};
  }
  static void EXPECT_TRY(const Status& status) { EXPECT_TRUE(status.ok()) << status.what(); }

  double loss(std::int64_t batch) {
    double sum = 0;
    for (const float one : read(net->losses(), static_cast<std::size_t>(batch))) sum += one;
    return sum / static_cast<double>(batch);
  }
  std::vector<float> gradient() { return read(net->gradient().data, net->gradient().count); }
  std::vector<Digest> replay() {
    const std::size_t count = net->replay_tensors().size();
    const Buffer answers = std::move(device->allocate(count * sizeof(Digest)).value());
    EXPECT_TRY(net->enqueue_replay(answers.as<Digest>()));
    const std::vector<float> words = read(answers.data(), count * sizeof(Digest) / sizeof(float));
    std::vector<Digest> digests(count);
    std::memcpy(static_cast<void*>(digests.data()), words.data(), count * sizeof(Digest));
    return digests;
  }

  std::unique_ptr<Device> device;
  SingleRankCommunicator communicator;
  Result<std::unique_ptr<Dnn>> library;
  std::unique_ptr<ConvNet> net;
};

class ConvNetOnCuda : public ::testing::TestWithParam<std::tuple<NetworkKind, Precision>> {
 protected:
  ConvNetConfig config() const {
    return {.kind = std::get<0>(GetParam()),
            .batch = 16,
            .pixels = 64,
            .classes = 100,
            .precision = std::get<1>(GetParam()),
            .seed = 3};
  }
  Network gpu{open_cuda_device(0), open_cuda_dnn};
};

/// fp32 sums differ only in their order; tf32 and bf16 round operands to 10 and 7 bits.
TEST_P(ConvNetOnCuda, GivesTheHostsLossAndGradients) {
  Network host(open_host_device({}), open_host_dnn);
  ConvNetConfig exact = config();
  exact.precision = Precision::fp32;
  for (const auto& [network, with] : {std::pair(&gpu, config()), std::pair(&host, exact)}) {
    const Status made = network->make(with);
    if (made.code() == StatusCode::unavailable) GTEST_SKIP() << made.what();
    ASSERT_TRUE(made.ok()) << made.what();
    ASSERT_TRUE(network->net->enqueue_training().ok());
  }
  const bool is_exact = config().precision == Precision::fp32;
  const double expected = host.loss(exact.batch);
  EXPECT_NEAR(gpu.loss(exact.batch), expected, (is_exact ? 1e-4 : 2e-2) * expected);
  const std::vector<float> ours = gpu.gradient(), theirs = host.gradient();
  for (const NetworkLayer& layer : gpu.net->plan().layers) {
    if (!layer.has_parameters()) continue;
    double product = 0, a = 0, b = 0;
    for (auto i = static_cast<std::size_t>(layer.weights); i < static_cast<std::size_t>(layer.end()); ++i) {
      product += static_cast<double>(ours[i]) * theirs[i];
      a += static_cast<double>(ours[i]) * ours[i];
      b += static_cast<double>(theirs[i]) * theirs[i];
    }
    EXPECT_GT(product / std::sqrt(a * b), is_exact ? 0.999 : 0.9) << layer.name;
  }
}

TEST_P(ConvNetOnCuda, RepeatsBitForBitAndLearns) {
  const Status made = gpu.make(config());
  if (made.code() == StatusCode::unavailable) GTEST_SKIP() << made.what();
  ASSERT_TRUE(made.ok()) << made.what();
  const std::vector<Digest> answers = gpu.replay();
  double first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    ASSERT_TRUE(gpu.net->enqueue_training().ok());
    last = gpu.loss(config().batch);
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 10);
  EXPECT_EQ(gpu.replay(), answers);
}

INSTANTIATE_TEST_SUITE_P(Networks, ConvNetOnCuda,
                         ::testing::Combine(::testing::Values(NetworkKind::simple_cnn, NetworkKind::resnet18),
                                            ::testing::Values(Precision::fp32, Precision::tf32,
                                                              Precision::bf16)),
                         [](const auto& info) {
                           return std::string(to_string(std::get<0>(info.param))) + "_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace egt
