#include "ranks/restartable_communicator.hpp"

#include <utility>

namespace egt {

void RestartableCommunicator::replace(std::unique_ptr<Communicator> communicator) {
  {
    const std::lock_guard lock(exchange_);
    std::swap(communicator_, communicator);
  }
  // Destroys the old communicator after the lock is released, since its library may wait.
}

void RestartableCommunicator::interrupt() {
  const std::lock_guard lock(exchange_);
  communicator_->interrupt();
}

Status RestartableCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  return communicator_->all_reduce(data, count, type, stream);
}

Status RestartableCommunicator::broadcast(void* data, std::size_t bytes, int root, Stream& stream) {
  return communicator_->broadcast(data, bytes, root, stream);
}

Status RestartableCommunicator::reduce_scatter(const void* send, void* recv, std::size_t recv_count,
                                               ElementType type, Stream& stream) {
  return communicator_->reduce_scatter(send, recv, recv_count, type, stream);
}

Status RestartableCommunicator::all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) {
  return communicator_->all_gather(send, recv, bytes, stream);
}

Status RestartableCommunicator::exchange(std::span<const Message> sends, std::span<const Message> receives,
                                         Stream& stream) {
  return communicator_->exchange(sends, receives, stream);
}

}  // namespace egt
