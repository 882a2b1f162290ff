#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "egt/ranks/communicator.hpp"

namespace egt {

/// A communicator that can be aborted and replaced during a run. Holders of a reference continue with the new
/// one. Communicators split from it are not replaced. They are aborted with their parent and must be split
/// again. One thread, except `interrupt`.
class RestartableCommunicator final : public Communicator {
 public:
  explicit RestartableCommunicator(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  /// Call after `abort`, with the new communicator that all ranks opened together.
  void replace(std::unique_ptr<Communicator> communicator);

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override;
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override;
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override;
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override;
  Status exchange(std::span<const Message> sends, std::span<const Message> receives, Stream& stream) override;
  Result<std::unique_ptr<Communicator>> split(int group) override { return communicator_->split(group); }
  Status check() override { return communicator_->check(); }
  void interrupt() override;
  void abort() override { communicator_->abort(); }

 private:
  std::mutex exchange_;  ///< protects the pointer against `interrupt`
  std::unique_ptr<Communicator> communicator_;
};

}  // namespace egt
