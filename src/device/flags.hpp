#pragma once

#include <cstdint>
#include <memory>

#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"

/// Flags: 32-bit words of shared memory by which the streams of several processes are put in order (see
/// Device::signal and Device::await).
namespace egt {

class Device;

/// A word, and the value that is written to it or waited for. Values count up; they are compared by their
/// signed difference, so that they may wrap.
struct Flag {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;
};

/// Gives up waits for flags, all at once: a shut gate ends every `await` under it, and no `signal` under it
/// writes any more, so that nobody is informed of data that did not come. A wait whose deadline passes shuts
/// it too. What the host and the devices look at is one word of pinned memory; a gate must not outlive its
/// device. Safe from any thread.
class FlagGate {
 public:
  enum class State : std::uint32_t { open, given_up, timed_out };

  static Result<std::shared_ptr<FlagGate>> make(Device& device);

  /// Shuts it, as given up; returns at once. Touches no device.
  void give_up() { shut(State::given_up); }
  /// Shuts it, unless it is shut.
  void shut(State why);
  State state() const;
  /// Ok while it is open; else `aborted` or `timeout`.
  Status status() const;

  /// For adapters: a State, in memory that a device may read and write too.
  std::uint32_t* word() const { return word_.as<std::uint32_t>(); }

 private:
  explicit FlagGate(Buffer word) : word_(std::move(word)) {}

  Buffer word_;
};

}  // namespace egt
