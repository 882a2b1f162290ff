#pragma once

#include <cstdint>
#include <stop_token>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Identifies a batch of a set. With the set's seed it determines the batch completely.
struct ImageBatch {
  std::uint64_t step = 0;   ///< below 2^48
  int rank = 0, ranks = 1;  ///< below 2^16
  std::int64_t images = 1;  ///< per rank and step
};

/// Images of side x side pixels x 3 channels, in this order, in fp32 of about -1 .. 1. Each has a label of 0
/// .. classes - 1. Thread-safe.
class ImageSet {
 public:
  static constexpr std::int64_t channels = 3;

  ImageSet(std::uint64_t seed, std::int64_t side) : seed_(seed), side_(side) {}
  virtual ~ImageSet() = default;

  virtual int classes() const = 0;
  std::int64_t side() const { return side_; }
  /// Values per image.
  std::int64_t values() const { return side_ * side_ * channels; }
  /// Writes image `index` of the batch to `pixels` (values() elements), with the same bits each time.
  /// stopped: a stop was requested.
  virtual Status make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
                      const std::stop_token& stop) const = 0;

 protected:
  /// Key of the counter-based generator for a purpose; different from other workloads of the same seed.
  std::uint64_t key(std::uint64_t purpose) const;

 private:
  const std::uint64_t seed_;
  const std::int64_t side_;
};

/// Learnable images: half the prototype of the label's class plus half uniform noise. A prototype is a grid
/// of cells x cells random colors.
class GeneratedImages : public ImageSet {
 public:
  static constexpr std::int64_t cells = 8;

  GeneratedImages(std::uint64_t seed, std::int64_t side, int classes = 16);

  int classes() const override { return classes_; }
  Status make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
              const std::stop_token& stop) const override;
  std::int32_t label(const ImageBatch& batch, std::int64_t index) const;
  /// Noise of the whole batch, image after image, as from Device::randomize.
  RandomSequence noise(const ImageBatch& batch) const;
  /// classes x values(), already halved.
  const std::vector<float>& prototypes() const { return prototypes_; }

 private:
  const int classes_;
  std::vector<float> prototypes_;
};

}  // namespace egt
