// Batches of images on a GPU: made by it, or by threads of the host.
#include <gtest/gtest.h>

#include "device/cuda/cuda_device.hpp"
#include "tests/support/image_fixture.hpp"

namespace egt::test {
namespace {

TEST(ImagesOnCuda, HaveTheBitsThatTheHostMakes) {
  for (const std::int64_t side : {33, 224}) {
    const GeneratedImages set(42, side);
    ImageBatch batch{.step = 1000, .rank = 3, .ranks = 8, .images = 20};
    auto opened = open_cuda_device(0);
    ASSERT_TRUE(opened.ok()) << opened.status().what();
    FeedTarget target(batch.images, set.values(), std::move(opened.value()));
    auto device_images = make_device_images(*target.device, set, batch, *target.stream);
    ASSERT_TRUE(device_images.ok()) << device_images.status().what();
    auto loader = make_image_loader(*target.device, set, {.first = batch, .workers = 3});
    ASSERT_TRUE(loader.ok()) << loader.status().what();
    for (int step = 0; step < 6; ++step, ++batch.step) {
      const MadeBatch expected = made_by(set, batch);
      EXPECT_EQ(target.next(*loader.value()), expected) << "threads, batch " << step;
      EXPECT_EQ(target.next(*device_images.value()), expected) << "the device, batch " << step;
    }
  }
}

}  // namespace
}  // namespace egt::test
