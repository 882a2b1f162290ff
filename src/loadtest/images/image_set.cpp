#include "loadtest/images/image_set.hpp"

#include <cstddef>

#include "egt/core/math/philox.hpp"
#include "egt/core/pattern.hpp"

namespace egt {
namespace {

enum Purpose : std::uint64_t { of_labels = 1, of_noise, of_prototypes };

constexpr float signal = 0.5f, noise_scale = 0.5f;

std::uint64_t sequence(const ImageBatch& batch) {
  return batch.step << 16 | static_cast<std::uint64_t>(batch.rank);
}

}  // namespace

std::uint64_t ImageSet::key(std::uint64_t purpose) const {
  return mix64(mix64(seed_ + 0x696D616765736574ull) + purpose);
}

GeneratedImages::GeneratedImages(std::uint64_t seed, std::int64_t side, int classes)
    : ImageSet(seed, side), classes_(classes) {
  const auto size = static_cast<std::uint64_t>(side);
  prototypes_.reserve(static_cast<std::size_t>(classes * values()));
  for (std::uint64_t k = 0; k < static_cast<std::uint64_t>(classes); ++k)
    for (std::uint64_t y = 0; y < size; ++y)
      for (std::uint64_t x = 0; x < size; ++x) {
        const Philox4 color =
            philox4x32_10(y * cells / size * cells + x * cells / size, k, key(of_prototypes));
        for (int c = 0; c < channels; ++c) prototypes_.push_back(signal * signed_unit(color.w[c]));
      }
}

std::int32_t GeneratedImages::label(const ImageBatch& batch, std::int64_t index) const {
  const Philox4 words = philox4x32_10(static_cast<std::uint64_t>(index), sequence(batch), key(of_labels));
  return static_cast<std::int32_t>(words.w[0] % static_cast<std::uint32_t>(classes_));
}

RandomSequence GeneratedImages::noise(const ImageBatch& batch) const {
  return {.seed = key(of_noise), .sequence = sequence(batch), .first = 0, .scale = noise_scale};
}

Status GeneratedImages::make(const ImageBatch& batch, std::int64_t index, float* pixels,
                             std::int32_t* label_of, const std::stop_token&) const {
  *label_of = label(batch, index);
  const RandomSequence random = noise(batch);
  const float* const prototype = prototypes_.data() + *label_of * values();
  std::uint64_t place = static_cast<std::uint64_t>(index * values());
  for (std::int64_t i = 0; i < values();) {
    const Philox4 words = philox4x32_10(place / 4, random.sequence, random.seed);
    for (std::uint64_t w = place % 4; w < 4 && i < values(); ++w, ++i, ++place)
      pixels[i] = random.scale * signed_unit(words.w[w]) + prototype[i];
  }
  return {};
}

}  // namespace egt
