#pragma once

#include <atomic>

#include "device/injection/forwarding_device.hpp"

namespace egt {

/// A device that from some moment on gets no work, though nobody is informed: whatever computes is left out,
/// and its results are what lay there before. Memory, copies, patterns and their checks, digests, flags and
/// streams stay as they are, so that the device still looks like one that is used.
class IdleDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  /// For all that is enqueued from now on. Any thread.
  void make_idle() { idle_ = true; }

 protected:
  bool computes() const override { return !idle_; }

 private:
  std::atomic<bool> idle_{false};
};

}  // namespace egt
