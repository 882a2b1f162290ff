#pragma once

#include <cstddef>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// The port for data between ranks: NCCL on GPUs, MPI on the host. All calls but `check` and `abort` put work
/// in a stream and return; all ranks make the same calls in the same order. With one rank every collective is
/// the identity.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place sum of `count` elements; all ranks get the same bits. f32 or bf16.
  virtual Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) = 0;
  virtual Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) = 0;
  /// recv[i] = the sum over ranks of send[rank() * recv_count + i], for i below recv_count; send: size() *
  /// recv_count elements. f32 or bf16. recv may be this rank's part of send; else they lie apart.
  virtual Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                                Stream& stream) = 0;
  /// recv: size() * bytes, in rank order.
  virtual Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) = 0;

  /// Has an earlier call failed asynchronously? Never blocks.
  virtual Status check() = 0;
  /// Gives up on all work under way, so that streams drain; afterwards only the destructor may be called.
  virtual void abort() = 0;
};

}  // namespace egt
