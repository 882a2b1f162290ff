#pragma once

#include <memory>
#include <span>

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "ranks/messages.hpp"

namespace egt {

/// A single rank: every collective is the identity, and gathers fill only the caller's slot.
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
  Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                  Stream& stream) override {
    EGT_TRY_ASSIGN(const auto own, own_messages(sends, receives, rank(), size()));
    for (const OwnMessage& message : own)
      EGT_TRY(device_.copy(message.to, message.from, message.bytes, stream));
    return {};
  }
  Result<std::unique_ptr<Communicator>> split(int group) override {
    if (group < 0) return std::unique_ptr<Communicator>();
    return std::unique_ptr<Communicator>(new SingleRankCommunicator(device_));
  }
  Status check() override { return {}; }
  void interrupt() override {}
  void abort() override {}

 private:
  Device& device_;
};

}  // namespace egt
