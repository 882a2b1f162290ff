#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "egt/device/handles.hpp"

namespace egt {

/// One message of an exchange.
struct Message {
  void* data;         ///< the device's memory: read where it is sent, written where it is received
  std::size_t bytes;  ///< the same on both sides; 0: nothing is sent, on neither side
  int peer;           ///< the rank that it goes to or comes from; may be this one
};

/// The port for data between ranks: NCCL on GPUs, MPI on the host. All calls but the last four put work in a
/// stream and return; all ranks make the same calls in the same order (`exchange` is looser).
/// With one rank every collective is the identity.
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

  /// All these messages at once, in both directions: whatever their order in the lists, none blocks another
  /// of the same exchange; but any may wait until all its peers have come to theirs. The n-th message that a
  /// rank sends to a peer, counted over all its exchanges, is the n-th that the peer receives from it; so
  /// only ranks that a message names need to call it, and a rank may send to a peer in one exchange and
  /// receive from it in another. A message to itself is a copy to its receive in the same exchange, in order;
  /// these must match in number and bytes. No memory that is received into overlaps other memory of the same
  /// exchange. The lists may be gone when the call returns, their memory may not before the stream has come
  /// past. `invalid_argument`, and nothing is sent, where a peer is no rank.
  virtual Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                          Stream& stream) = 0;

  /// A communicator of its own for the ranks that call it with the same `group` >= 0, numbered in the order
  /// of their ranks here; null for a rank with group -1. Collective over all ranks of this one, also those
  /// with -1; waits for them with the adapter's deadline, with no other work of this communicator under way.
  /// The new one may outlive this one. `interrupt` and `abort` of this one reach it too, not the other way
  /// round.
  virtual Result<std::unique_ptr<Communicator>> split(int group) = 0;

  /// Has an earlier call failed asynchronously? Never blocks.
  virtual Status check() = 0;
  /// From here on `check` and all calls fail with `aborted`, also one that is waiting for peers, and those of
  /// what was split from it; work that is in streams stays until `abort`. Any thread.
  virtual void interrupt() = 0;
  /// Gives up on all work under way, also of what was split from it, so that streams drain; afterwards only
  /// the destructors may be called.
  virtual void abort() = 0;
};

/// Rank r gets `bytes_per_rank` from send + r * bytes_per_rank of every rank, in rank order; from itself too.
/// send and recv: size() * bytes_per_rank each, which do not overlap. Collective; in the stream, as an
/// exchange.
Status all_to_all(Communicator& communicator, const void* send, void* recv, std::size_t bytes_per_rank,
                  Stream& stream);

}  // namespace egt
