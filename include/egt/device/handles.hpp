#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "egt/core/view.hpp"

namespace egt {

/// Owns a range of memory of a device, or pinned host memory; move-only. Must not outlive its device; the
/// caller makes sure that no enqueued work still uses it.
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

/// Memory of a device that other processes of its host may open, by `handle`: one printable word.
struct SharedBuffer {
  Buffer buffer;
  std::string handle;
};

/// Who is served first where several streams want the device. `background` is work of a bounded width (see
/// Stream::set_width), which may go before normal work on a GPU without keeping it from starting; on the
/// host, whose cores all threads share, it gives way. `low` is for work that fills what others leave.
enum class StreamPriority { high, background, normal, low };

/// What a stream is for. `gemm`, `activation_gradient` and `loss_gradient` need device
/// memory of the stream's own on a GPU, some 80 MiB: a stream that takes none of them has none.
enum class StreamUse { all, without_products };

/// Work in order, on one device. Made by Device::create_stream and used with that device only, from one
/// thread at a time (different streams may be used by different threads at once). Its destructor waits for
/// its work.
class Stream {
 public:
  explicit Stream(StreamUse use) : use_(use) {}
  virtual ~Stream() = default;

  StreamUse use() const { return use_; }
  /// How much of a GPU an operation on words, or an extreme term, that is enqueued from now on may fill, in
  /// blocks of threads a multiprocessor; 0: all of it. The host takes no notice.
  void set_width(double width) { width_ = width; }
  double width() const { return width_; }

 private:
  const StreamUse use_;
  double width_ = 0;
};

/// Operations that were captured once, see Device::capture; must not outlive its device.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

/// What an event is for. To take the time costs a GPU's stream about a microsecond a recording: between
/// short kernels too much for an event that only puts streams in order, or tells the host that work is done.
enum class EventUse { order, timing };

/// A mark in a stream. Made by Device::create_event. May be recorded again once its last use is over.
class Event {
 public:
  explicit Event(EventUse use) : use_(use) {}
  virtual ~Event() = default;

  EventUse use() const { return use_; }

 private:
  const EventUse use_;
};

}  // namespace egt
