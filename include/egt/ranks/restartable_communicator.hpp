#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "egt/ranks/communicator.hpp"

namespace egt {

/// A communicator that can be given up and exchanged for a new one in mid-run, so that all who hold a
/// reference to it go on with the new one. One thread, `interrupt` aside.
class RestartableCommunicator final : public Communicator {
 public:
  explicit RestartableCommunicator(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  /// From here on `check` and all collectives fail with `aborted`, so that waits for peers end; work that is
  /// under way stays until `abort`. Any thread; touches nothing of the communicator itself.
  void interrupt() { interrupted_ = true; }
  /// After `abort`: the new one, which all ranks opened together.
  void replace(std::unique_ptr<Communicator> communicator);

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override;
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override;
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override;
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override;
  Status check() override;
  void abort() override { communicator_->abort(); }

 private:
  std::unique_ptr<Communicator> communicator_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace egt
