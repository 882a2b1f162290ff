#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "device/injection/forwarding_device.hpp"

namespace egt {

/// A device with injected faults. Each fault is started by a call of a member function, from any thread.
class InjectingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  /// Operations that compute are skipped from now on, so results are the previous memory contents. Memory,
  /// copies, patterns and their checks, digests, signals and streams still work, so the device appears busy.
  void make_idle() { idle_ = true; }
  /// Call number `call` (from 1) of those that can fail returns a hardware error. So does every later call,
  /// as after such an error in CUDA. The failing call runs `on_strike` on its thread. Only the first call of
  /// fail_at has an effect.
  ///
  /// Work on host streams continues, whereas a failed GPU would stop. To keep its memory valid, freed memory
  /// is leaked from then on.
  void fail_at(std::uint64_t call, std::function<void()> on_strike) {
    if (fails_.load()) return;
    on_strike_ = std::move(on_strike);
    calls_left_ = static_cast<std::int64_t>(call);
    fails_ = true;
  }

  Result<Buffer> allocate(std::size_t bytes) override { return kept(ForwardingDevice::allocate(bytes)); }
  Result<Buffer> allocate_pinned(std::size_t bytes) override {
    return kept(ForwardingDevice::allocate_pinned(bytes));
  }

 protected:
  bool computes() const override { return !idle_; }
  Status failure() const override {
    if (!fails_.load()) return {};
    const std::int64_t left = calls_left_.fetch_sub(1);
    if (left > 1) return {};
    if (left == 1) on_strike_();
    constexpr long ecc_uncorrectable = 214;  // CUDA's error number
    return Status(StatusCode::device_error,
                  "an injected error: uncorrectable ECC error encountered (cudaErrorECCUncorrectable)",
                  ecc_uncorrectable);
  }

 private:
  Result<Buffer> kept(Result<Buffer> made) const {
    if (!made.ok()) return made;
    void* const data = made.value().data();
    const std::size_t bytes = made.value().bytes();
    auto owner = std::make_shared<Buffer>(std::move(made.value()));
    return Buffer(data, bytes, [this, owner = std::move(owner)](void*) mutable {
      if (has_failed()) static_cast<void>(new std::shared_ptr<Buffer>(std::move(owner)));
      owner.reset();
    });
  }
  bool has_failed() const { return fails_.load() && calls_left_.load() <= 0; }

  std::atomic<bool> idle_{false}, fails_{false};
  std::function<void()> on_strike_;                  ///< written before `fails_`
  mutable std::atomic<std::int64_t> calls_left_{0};  ///< calls up to and including the failing one
};

}  // namespace egt
