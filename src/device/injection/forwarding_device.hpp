#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "egt/device/device.hpp"

namespace egt {

/// Forwards every call to another device. Base class of devices that differ in a few calls.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : to_(std::move(device)) {}

  const DeviceInfo& info() const override { return to_->info(); }
  Support supports(Precision precision) const override { return to_->supports(precision); }
  Result<MemoryInfo> memory() const override {
    return pass([&] { return to_->memory(); });
  }
  Result<Buffer> allocate(std::size_t bytes) override {
    return pass([&] { return to_->allocate(bytes); });
  }
  Result<Buffer> allocate_pinned(std::size_t bytes) override {
    return pass([&] { return to_->allocate_pinned(bytes); });
  }
  Result<std::unique_ptr<Stream>> create_stream(StreamPriority p, StreamUse use) override {
    return pass([&] { return to_->create_stream(p, use); });
  }
  Result<std::unique_ptr<Event>> create_event(EventUse use) override {
    return pass([&] { return to_->create_event(use); });
  }
  Status record(Event& event, Stream& s) override {
    return pass([&] { return to_->record(event, s); });
  }
  Status wait(Stream& s, const Event& event) override {
    return pass([&] { return to_->wait(s, event); });
  }
  Result<bool> done(const Event& event) override {
    return pass([&] { return to_->done(event); });
  }
  Result<double> elapsed_ms(const Event& a, const Event& b) override {
    return pass([&] { return to_->elapsed_ms(a, b); });
  }
  Result<double> busy_ms(const Event& a, const Event& b) override {
    return pass([&] { return to_->busy_ms(a, b); });
  }
  Status synchronize(Stream& s, double seconds) override {
    return pass([&] { return to_->synchronize(s, seconds); });
  }
  Status forget_failure(Stream& s, double seconds) override {
    return pass([&] { return to_->forget_failure(s, seconds); });
  }
  Result<std::unique_ptr<CapturedWork>> capture(Stream& s, std::function<Status()> enqueue) override {
    return pass([&] { return to_->capture(s, std::move(enqueue)); });
  }
  Status enqueue_captured(CapturedWork& work, Stream& s) override {
    return compute([&] { return to_->enqueue_captured(work, s); });
  }
  Status allow_holds() override {
    return pass([&] { return to_->allow_holds(); });
  }
  void hold(bool is_held) override { to_->hold(is_held); }
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override {
    return pass([&] { return to_->allocate_shared(bytes); });
  }
  Result<Buffer> open_shared(const std::string& handle) override {
    return pass([&] { return to_->open_shared(handle); });
  }
  Result<Buffer> register_signals(void* pages, std::size_t bytes) override {
    return pass([&] { return to_->register_signals(pages, bytes); });
  }

 protected:
  Status enqueue_checked(const Operation& operation, Stream& s) override {
    return std::visit(
        [&]<typename T>(const T& call) -> Status {
          return is_computation<T> ? compute([&] { return to_->enqueue(call, s); })
                                   : pass([&] { return to_->enqueue(call, s); });
        },
        operation);
  }

  /// Called before operations that compute (no copies, patterns or digests); false skips the operation.
  virtual bool computes() const { return true; }
  /// Called before every call that can fail. If it returns an error, the call is not forwarded.
  virtual Status failure() const { return {}; }

 private:
  template <typename T, typename... Others>
  static constexpr bool is_one_of = (std::is_same_v<T, Others> || ...);
  template <typename T>
  static constexpr bool is_computation =
      !is_one_of<T, Copy, SetZero, WriteSignal, AwaitSignal, Fill, Reset, Verify, VerifyAndFill, VerifySum,
                 DigestWords, SumWords, FlipWords>;

  template <typename Call>
  auto pass(const Call& call) const -> decltype(call()) {
    EGT_TRY(failure());
    return call();
  }
  template <typename Call>
  Status compute(const Call& call) const {
    EGT_TRY(failure());
    return computes() ? call() : Status();
  }

  const std::unique_ptr<Device> to_;
};

}  // namespace egt
