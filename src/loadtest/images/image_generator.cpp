#include <array>
#include <cstring>
#include <utility>

#include "egt/device/device.hpp"
#include "loadtest/images/image_feed.hpp"

namespace egt {
namespace {

constexpr double longest_wait_seconds = 60;

/// x = noise + one-hot labels * prototypes.
class DeviceImages : public ImageFeed {
 public:
  DeviceImages(Device& device, GeneratedImages images, const ImageBatch& first)
      : device_(device), images_(std::move(images)), next_(first) {}
  ~DeviceImages() override {
    for (const Slot& slot : slots_)
      if (slot.read)
        static_cast<void>(
            wait_until([&] { return device_.done(*slot.read); }, {.seconds = longest_wait_seconds}));
  }

  Status allocate(Stream& stream) {
    const std::size_t label_bytes = static_cast<std::size_t>(next_.images) * sizeof(std::int32_t);
    const std::size_t classes = static_cast<std::size_t>(images_.classes());
    EGT_TRY_ASSIGN(one_hot_, device_.allocate(label_bytes * classes));
    for (Slot& slot : slots_) {
      EGT_TRY_ASSIGN(slot.labels, device_.allocate_pinned(label_bytes));
      EGT_TRY_ASSIGN(slot.one_hot, device_.allocate_pinned(label_bytes * classes));
      EGT_TRY_ASSIGN(slot.read, device_.create_event(EventUse::order));
    }
    const std::size_t bytes = images_.prototypes().size() * sizeof(float);
    EGT_TRY_ASSIGN(prototypes_, device_.allocate(bytes));
    EGT_TRY_ASSIGN(const Buffer staged, device_.allocate_pinned(bytes));
    std::memcpy(staged.data(), images_.prototypes().data(), bytes);
    EGT_TRY(device_.copy(prototypes_.data(), staged.data(), bytes, stream));
    return device_.synchronize(stream, longest_wait_seconds);
  }

  Status enqueue(float* x, std::int32_t* labels, Stream& stream, const WaitLimits& limits) override {
    Slot& slot = slots_[next_.step % slots_.size()];
    EGT_TRY(wait_until([&] { return device_.done(*slot.read); }, limits));
    std::memset(slot.one_hot.data(), 0, slot.one_hot.bytes());
    for (std::int64_t i = 0; i < next_.images; ++i) {
      const std::int32_t label = images_.label(next_, i);
      slot.labels.as<std::int32_t>()[i] = label;
      slot.one_hot.as<float>()[i * images_.classes() + label] = 1;
    }
    const std::int64_t values = images_.values();
    EGT_TRY(device_.copy(labels, slot.labels.data(), slot.labels.bytes(), stream));
    EGT_TRY(device_.copy(one_hot_.data(), slot.one_hot.data(), slot.one_hot.bytes(), stream));
    EGT_TRY(device_.record(*slot.read, stream));
    EGT_TRY(device_.randomize({x, ElementType::f32, next_.images * values}, images_.noise(next_), stream));
    EGT_TRY(device_.gemm({.precision = Precision::fp32,
                          .a = {one_hot_.data(), ElementType::f32, next_.images, images_.classes()},
                          .b = {prototypes_.data(), ElementType::f32, images_.classes(), values},
                          .d = {x, ElementType::f32, next_.images, values},
                          .beta = 1.0},
                         stream));
    ++next_.step;
    return {};
  }

  FeedFigures figures() const override { return {}; }

 private:
  struct Slot {
    Buffer labels, one_hot;  ///< pinned; images, and images x classes
    std::unique_ptr<Event> read;
  };

  Device& device_;
  const GeneratedImages images_;
  ImageBatch next_;
  Buffer one_hot_, prototypes_;  ///< device memory; images x classes, and classes x values
  std::array<Slot, 4> slots_;
};

}  // namespace

Result<std::unique_ptr<ImageFeed>> make_device_images(Device& device, const GeneratedImages& images,
                                                      const ImageBatch& first, Stream& stream) {
  auto feed = std::make_unique<DeviceImages>(device, images, first);
  EGT_TRY(feed->allocate(stream));
  return std::unique_ptr<ImageFeed>(std::move(feed));
}

}  // namespace egt
