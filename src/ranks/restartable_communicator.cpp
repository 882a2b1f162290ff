#include "egt/ranks/restartable_communicator.hpp"

#include <utility>

namespace egt {

void RestartableCommunicator::replace(std::unique_ptr<Communicator> communicator) {
  communicator_ = std::move(communicator);
  interrupted_ = false;
}

Status RestartableCommunicator::check() {
  if (interrupted_) return {StatusCode::aborted, "the communicator is given up for a new one"};
  return communicator_->check();
}

Status RestartableCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  EGT_TRY(check());
  return communicator_->all_reduce(data, count, type, stream);
}

Status RestartableCommunicator::broadcast(void* data, std::size_t bytes, int root, Stream& stream) {
  EGT_TRY(check());
  return communicator_->broadcast(data, bytes, root, stream);
}

Status RestartableCommunicator::reduce_scatter(const void* send, void* recv, std::size_t recv_count,
                                               ElementType type, Stream& stream) {
  EGT_TRY(check());
  return communicator_->reduce_scatter(send, recv, recv_count, type, stream);
}

Status RestartableCommunicator::all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) {
  EGT_TRY(check());
  return communicator_->all_gather(send, recv, bytes, stream);
}

}  // namespace egt
