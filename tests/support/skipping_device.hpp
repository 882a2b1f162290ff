#pragma once

#include "device/injection/forwarding_device.hpp"

namespace egt::test {

/// The copy with this number, from 1, returns success without its work.
class SkippingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) override {
    return ++copies_ == skipped ? Status() : ForwardingDevice::copy(to, from, bytes, stream);
  }

  int skipped = 0;

 private:
  int copies_ = 0;
};

}  // namespace egt::test
