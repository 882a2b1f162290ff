#pragma once

#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "egt/device/device.hpp"

namespace egt::contract {

/// Device memory mirrored in pinned host memory. Many small arrays are transferred with one copy in each
/// direction. Every array is followed by a few bytes that must not be modified.
class Arena {
 public:
  static Result<Arena> make(Device& device, std::size_t bytes) {
    Arena arena;
    EGT_TRY_ASSIGN(arena.device_, device.allocate(bytes));
    EGT_TRY_ASSIGN(arena.image_, device.allocate_pinned(bytes));
    arena.clear();
    return arena;
  }

  /// Drops all arrays.
  void clear() {
    used_ = 0;
    std::memset(image_.data(), untouched, image_.bytes());
  }
  /// Reserves `count` elements, `shift` bytes after a 256-byte boundary. Returns the device address.
  template <typename T>
  T* reserve(std::size_t count, std::size_t shift = 0) {
    T* const place = reinterpret_cast<T*>(device_.as<std::byte>() + used_ + shift);
    used_ += (count * sizeof(T) + shift + 16 + 255) / 256 * 256;
    if (used_ > image_.bytes()) throw std::length_error("the test's arrays do not fit its arena");
    return place;
  }
  template <typename T>
  T* put(const std::vector<T>& values, std::size_t shift = 0) {
    T* const place = reserve<T>(values.size(), shift);
    if (!values.empty()) std::memcpy(image(place), values.data(), values.size() * sizeof(T));
    return place;
  }

  Status upload(Device& device, Stream& stream) {
    return device.copy(device_.data(), image_.data(), used_, stream);
  }
  Status download(Device& device, Stream& stream) {
    return device.copy(image_.data(), device_.data(), used_, stream);
  }

  /// The array as last uploaded or downloaded.
  template <typename T>
  T* image(T* place) const {
    return reinterpret_cast<T*>(image_.as<std::byte>() +
                                (reinterpret_cast<std::byte*>(place) - device_.as<std::byte>()));
  }
  template <typename T>
  std::vector<T> get(T* place, std::size_t count) const {
    return std::vector<T>(image(place), image(place) + count);
  }
  /// True if the bytes after the array are unmodified.
  template <typename T>
  bool end_is_untouched(T* place, std::size_t count) const {
    const auto* end = reinterpret_cast<const unsigned char*>(image(place) + count);
    for (int i = 0; i < 16; ++i)
      if (end[i] != untouched) return false;
    return true;
  }

 private:
  static constexpr unsigned char untouched = 0xA5;

  Buffer device_, image_;
  std::size_t used_ = 0;
};

}  // namespace egt::contract

/// `name`: an Arena of the tested device with a capacity of `size` bytes.
#define EGT_MAKE_ARENA(name, size)                                                                      \
  ::egt::Result<::egt::contract::Arena> egt_made_##name = ::egt::contract::Arena::make(device(), size); \
  ASSERT_TRUE(egt_made_##name.ok()) << egt_made_##name.status().what();                                 \
  ::egt::contract::Arena& name = egt_made_##name.value()
