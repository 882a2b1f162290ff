#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "egt/core/flip.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {

/// Does what the real one does; and while it is broken, changes the same words of every product's result.
class CorruptingDevice : public ForwardingDevice {
 public:
  CorruptingDevice(std::unique_ptr<Device> real, const Flip& flip)
      : ForwardingDevice(std::move(real)), flip_(flip) {}

  /// For the products enqueued from now on.
  void set_broken(bool broken) { broken_ = broken; }

  Status gemm(const Gemm& gemm, Stream& stream) override {
    EGT_TRY(ForwardingDevice::gemm(gemm, stream));
    if (!broken_) return {};
    const std::size_t bytes = static_cast<std::size_t>(gemm.d.columns) * size_of(gemm.d.type);
    const WordsView first_row{static_cast<std::uint32_t*>(gemm.d.data), bytes / sizeof(std::uint32_t)};
    return flip(first_row, flip_, stream);
  }

 private:
  const Flip flip_;
  bool broken_ = false;
};

}  // namespace egt::test
