#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "egt/core/view.hpp"

namespace egt {

/// Owns a range of device memory, or pinned host memory; move-only. Must not outlive its device. The caller
/// ensures that no enqueued work still uses it.
class Buffer {
 public:
  using Release = std::function<void(void*)>;

  Buffer() = default;
  Buffer(void* data, std::size_t bytes, Release release) : data_(data, std::move(release)), bytes_(bytes) {}

  void* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  std::size_t bytes() const { return bytes_; }
  /// The whole words in it.
  WordsView words() const { return {as<std::uint32_t>(), bytes_ / sizeof(std::uint32_t)}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::unique_ptr<void, Release> data_{nullptr, [](void*) {}};
  std::size_t bytes_ = 0;
};

/// Device memory that other processes of the node may open by `handle`, one printable word.
struct SharedBuffer {
  Buffer buffer;
  std::string handle;
};

/// Scheduling priority of a stream. `background` is work of bounded width (see Stream::set_width). On a GPU
/// it may run before normal work without delaying its start; on the host, whose cores all threads share, it
/// yields. `low` is for work that fills idle resources.
enum class StreamPriority { high, background, normal, low };

/// Operations that a stream supports. On a GPU, `gemm`, `activation_gradient` and `loss_gradient` need about
/// 80 MiB of device memory per stream. A stream without them does not allocate it.
enum class StreamUse { all, without_products };

/// In-order work on one device. Created by Device::create_stream and used with that device only, by one
/// thread at a time; different threads may use different streams. Its destructor waits for its work.
class Stream {
 public:
  explicit Stream(StreamUse use) : use_(use) {}
  virtual ~Stream() = default;

  StreamUse use() const { return use_; }
  /// Limits the GPU share of word operations and transcendental chains that are enqueued from now on, in
  /// thread blocks per multiprocessor; 0: no limit. The host ignores it.
  void set_width(double width) { width_ = width; }
  double width() const { return width_; }

 private:
  const StreamUse use_;
  double width_ = 0;
};

/// Operations captured once, see Device::capture; must not outlive its device.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

/// Purpose of an event. Timing costs a GPU's stream about one microsecond per record. Between short kernels
/// that is too much for an event that only orders streams or signals completion to the host.
enum class EventUse { order, timing };

/// A marker in a stream. Created by Device::create_event. May be recorded again after its last use is over.
class Event {
 public:
  explicit Event(EventUse use) : use_(use) {}
  virtual ~Event() = default;

  EventUse use() const { return use_; }

 private:
  const EventUse use_;
};

}  // namespace egt
