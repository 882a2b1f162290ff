#include <atomic>
#include <vector>

#include "device/arguments.hpp"
#include "device/host/host_operations.hpp"
#include "egt/core/wait.hpp"

/// Flags of the host: atomic words, which are the same ones in every process that maps them.
namespace egt::host {
namespace {

static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free);

bool reached(const Flag& flag) {
  const std::uint32_t now = std::atomic_ref(*flag.word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - flag.value) >= 0;
}

}  // namespace

Status signal(std::span<const Flag> flags, const std::shared_ptr<FlagGate>& gate, HostStream& stream) {
  EGT_TRY(check_signal(flags));
  stream.enqueue([gate, flags = std::vector(flags.begin(), flags.end())]() -> Status {
    if (gate) EGT_TRY(gate->status());
    for (const Flag& flag : flags) std::atomic_ref(*flag.word).store(flag.value, std::memory_order_release);
    return {};
  });
  return {};
}

Status await(std::span<const Flag> flags, double seconds, const std::shared_ptr<FlagGate>& gate,
             HostStream& stream) {
  EGT_TRY(check_await(flags, seconds, gate.get()));
  stream.enqueue([gate, seconds, flags = std::vector(flags.begin(), flags.end())] {
    const Status waited = wait_until(
        [&]() -> Result<bool> {
          bool all = true;
          for (const Flag& flag : flags) all = all && reached(flag);
          if (!all) EGT_TRY(gate->status());
          return all;
        },
        {.seconds = seconds, .what = "a peer's flag"});
    if (waited.code() == StatusCode::timeout) gate->shut(FlagGate::State::timed_out);
    return waited;
  });
  return {};
}

}  // namespace egt::host
