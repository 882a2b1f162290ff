#include "device/flags.hpp"

#include <atomic>
#include <utility>

#include "egt/device/device.hpp"

namespace egt {
namespace {

std::uint32_t number(FlagGate::State state) {
  return static_cast<std::uint32_t>(state);
}

}  // namespace

Result<std::shared_ptr<FlagGate>> FlagGate::make(Device& device) {
  EGT_TRY_ASSIGN(Buffer word, device.allocate_pinned(sizeof(std::uint32_t)));
  *word.as<std::uint32_t>() = number(State::open);
  return std::shared_ptr<FlagGate>(new FlagGate(std::move(word)));
}

void FlagGate::shut(State why) {
  std::uint32_t open = number(State::open);
  std::atomic_ref(*word()).compare_exchange_strong(open, number(why));
}

FlagGate::State FlagGate::state() const {
  return static_cast<State>(std::atomic_ref(*word()).load(std::memory_order_acquire));
}

Status FlagGate::status() const {
  switch (state()) {
    case State::open:
      return {};
    case State::given_up:
      return Status(StatusCode::aborted, "the wait for a peer's flag was given up");
    case State::timed_out:
      break;
  }
  return Status(StatusCode::timeout, "a peer's flag did not come before the deadline");
}

}  // namespace egt
