#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/workload_fixture.hpp"
#include "workload/loadtest/image_feed.hpp"
#include "workload/loadtest/image_set.hpp"

namespace egt::test {

struct MadeBatch {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  bool operator==(const MadeBatch&) const = default;
};

/// What the set itself says of a batch.
inline MadeBatch made_by(const ImageSet& set, const ImageBatch& batch) {
  const std::int64_t values = set.values();
  MadeBatch made{std::vector<float>(static_cast<std::size_t>(batch.images * values)),
                 std::vector<std::int32_t>(static_cast<std::size_t>(batch.images))};
  for (std::int64_t i = 0; i < batch.images; ++i)
    EXPECT_EQ(set.make(batch, i, made.pixels.data() + i * values, made.labels.data() + i, {}).what(), "");
  return made;
}

/// A host device, whose memory tests may read.
class FeedTarget {
 public:
  FeedTarget(std::int64_t images, std::int64_t values)
      : device(small_host_device()),
        stream(std::move(device->create_stream(StreamPriority::normal).value())),
        pixels(std::move(device->allocate(static_cast<std::size_t>(images * values) * 4).value())),
        labels(std::move(device->allocate(static_cast<std::size_t>(images) * 4).value())) {}

  Status enqueue(ImageFeed& feed, const WaitLimits& limits = {.seconds = 60}) {
    return feed.enqueue(pixels.as<float>(), labels.as<std::int32_t>(), *stream, limits);
  }
  /// The feed's next batch.
  MadeBatch next(ImageFeed& feed) {
    EXPECT_EQ(enqueue(feed).what(), "");
    EXPECT_TRUE(device->synchronize(*stream, 60).ok());
    return {{pixels.as<float>(), pixels.as<float>() + pixels.bytes() / 4},
            {labels.as<std::int32_t>(), labels.as<std::int32_t>() + labels.bytes() / 4}};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Buffer pixels, labels;
};

/// A folder that goes with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "egt_images_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ~ScratchFolder() { std::filesystem::remove_all(path); }

  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file.string();
  }

  std::string path;
};

/// All of one color.
inline std::string ppm(int width, int height, unsigned char red, unsigned char green, unsigned char blue) {
  std::string text = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int i = 0; i < width * height; ++i) text += {char(red), char(green), char(blue)};
  return text;
}

}  // namespace egt::test
