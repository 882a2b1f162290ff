#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "device/injection/forwarding_device.hpp"

namespace egt::test {

/// Enqueues an operation on the real device.
using Enqueue = std::function<Status(const Operation&)>;

/// A device on which `change` replaces every operation of type T.
template <typename T>
class ChangedDevice final : public ForwardingDevice {
 public:
  using Change = std::function<Status(T, const Enqueue&)>;
  ChangedDevice(std::unique_ptr<Device> real, Change change)
      : ForwardingDevice(std::move(real)), change_(std::move(change)) {}

 protected:
  Status enqueue_checked(const Operation& operation, Stream& stream) override {
    const Enqueue enqueue = [&](const Operation& changed) {
      return ForwardingDevice::enqueue_checked(changed, stream);
    };
    const T* const call = std::get_if<T>(&operation);
    return call ? change_(*call, enqueue) : enqueue(operation);
  }

 private:
  const Change change_;
};

template <typename T>
std::unique_ptr<Device> changed(std::unique_ptr<Device> real, typename ChangedDevice<T>::Change change) {
  return std::make_unique<ChangedDevice<T>>(std::move(real), std::move(change));
}

/// The copy with this number, from 1, returns success without its work. `skipped` must outlive the device.
inline std::unique_ptr<Device> skips_a_copy(std::unique_ptr<Device> real, const int& skipped) {
  return changed<Copy>(std::move(real),
                       [&skipped, copies = 0](const Copy& call, const Enqueue& enqueue) mutable {
                         return ++copies == skipped ? Status() : enqueue(call);
                       });
}

}  // namespace egt::test
