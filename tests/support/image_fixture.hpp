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

#include "loadtest/images/image_feed.hpp"
#include "loadtest/images/image_set.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {

struct MadeBatch {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  bool operator==(const MadeBatch&) const = default;
};

/// The labels and images that the set itself gives for a batch.
inline MadeBatch made_by(const ImageSet& set, const ImageBatch& batch) {
  const std::int64_t values = set.values();
  MadeBatch made{std::vector<float>(static_cast<std::size_t>(batch.images * values)),
                 std::vector<std::int32_t>(static_cast<std::size_t>(batch.images))};
  for (std::int64_t i = 0; i < batch.images; ++i)
    EXPECT_EQ(set.make(batch, i, made.pixels.data() + i * values, made.labels.data() + i, {}).what(), "");
  return made;
}

/// A device with memory for a batch; on the host device tests may read it directly.
class FeedTarget {
 public:
  FeedTarget(std::int64_t images, std::int64_t values, std::unique_ptr<Device> a_device = small_host_device())
      : device(std::move(a_device)),
        stream(std::move(device->create_stream(StreamPriority::normal).value())),
        pixels(std::move(device->allocate(static_cast<std::size_t>(images * values) * 4).value())),
        labels(std::move(device->allocate(static_cast<std::size_t>(images) * 4).value())) {}

  Status enqueue(ImageFeed& feed, const WaitLimits& limits = {.seconds = 60}) {
    return feed.enqueue(pixels.as<float>(), labels.as<std::int32_t>(), *stream, limits);
  }
  /// The feed's next batch.
  MadeBatch next(ImageFeed& feed) {
    EXPECT_EQ(enqueue(feed).what(), "");
    return {fetch<float>(pixels), fetch<std::int32_t>(labels)};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  Buffer pixels, labels;

 private:
  template <typename T>
  std::vector<T> fetch(const Buffer& from) {
    const Buffer pinned = std::move(device->allocate_pinned(from.bytes()).value());
    EXPECT_TRUE(device->copy(pinned.data(), from.data(), from.bytes(), *stream).ok());
    EXPECT_EQ(device->synchronize(*stream, 60).what(), "");
    return {pinned.as<T>(), pinned.as<T>() + from.bytes() / sizeof(T)};
  }
};

/// A folder that is deleted with this object.
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

/// An image of a single color.
inline std::string ppm(int width, int height, unsigned char red, unsigned char green, unsigned char blue) {
  std::string text = "P6\n" + std::to_string(width) + " " + std::to_string(height) + "\n255\n";
  for (int i = 0; i < width * height; ++i) text += {char(red), char(green), char(blue)};
  return text;
}

}  // namespace egt::test
