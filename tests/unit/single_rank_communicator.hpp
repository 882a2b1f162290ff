#pragma once

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"

namespace egt {

/// One rank alone: every collective is the identity, and gathers are left to the caller's single slot.
class SingleRankCommunicator : public Communicator {
 public:
  explicit SingleRankCommunicator(Device& device) : device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status all_reduce(void*, std::size_t, ElementType, Stream&) override { return {}; }
  Status broadcast(void*, std::size_t, int, Stream&) override { return {}; }
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override {
    return device_.copy(recv, send, recv_count * size_of(type), stream);
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    return device_.copy(recv, send, bytes, stream);
  }
  Status check() override { return {}; }
  void abort() override {}

 private:
  Device& device_;
};

}  // namespace egt
