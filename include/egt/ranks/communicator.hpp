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
  void* data;         ///< device memory: source of a send, target of a receive
  std::size_t bytes;  ///< the same on both sides; 0: neither side transfers anything
  int peer;           ///< destination or source rank; may be this rank
};

/// The port for data between ranks: NCCL on GPUs, MPI on the host. All calls except `split`, `check`,
/// `interrupt` and `abort` enqueue work in a stream and return. All ranks issue the same calls in the same
/// order, except for `exchange`. With one rank every collective is the identity.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sums `count` elements in place; all ranks get the same bits. f32 or bf16.
  virtual Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) = 0;
  virtual Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) = 0;
  /// recv[i] = the sum over ranks of send[rank() * recv_count + i] for i < recv_count. `send` has size() *
  /// recv_count elements of f32 or bf16. `recv` is this rank's part of `send`, or does not overlap it.
  virtual Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                                Stream& stream) = 0;
  /// `recv` holds size() * bytes, in rank order.
  virtual Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) = 0;

  /// Transfers all messages concurrently in both directions. The order in the lists cannot cause a deadlock,
  /// but any message may wait until all peers of this rank's messages have called `exchange`.
  /// - Matching: the n-th message that a rank sends to a peer, counted over all its exchanges, is the n-th
  ///   that the peer receives from it. Only the two ranks of a message need to call. A rank may send to a
  ///   peer in one exchange and receive from it in another. Messages to the own rank are matched in order
  ///   within one exchange; number and bytes must agree.
  /// - Memory: receive buffers must not overlap other memory of the exchange. The lists may be freed after
  ///   the call, the data only after the stream has executed it.
  /// - Errors: `invalid_argument`, with nothing sent, if a peer is not a rank.
  virtual Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                          Stream& stream) = 0;

  /// Creates a communicator for the ranks that pass the same `group` >= 0, numbered in rank order; null for a
  /// rank that passes -1. Collective over all ranks of this communicator, also those with -1, with the
  /// adapter's timeout. No other work of this communicator may be in flight. The new one may outlive this
  /// one. `interrupt` and `abort` of this one also apply to the new one, but not vice versa.
  virtual Result<std::unique_ptr<Communicator>> split(int group) = 0;

  /// Returns the asynchronous failure of an earlier call, if any. Never blocks.
  virtual Status check() = 0;
  /// Makes `check` and all later calls fail with `aborted`, and ends calls that wait for peers. Also applies
  /// to split communicators. Work that is already enqueued stays in its stream until `abort`. Any thread.
  virtual void interrupt() = 0;
  /// Aborts all work in flight, also that of split communicators, so that streams drain. Afterwards only
  /// destructors may be called.
  virtual void abort() = 0;
};

/// Rank r gets `bytes_per_rank` from send + r * bytes_per_rank of every rank, in rank order, including its
/// own. send and recv: size() * bytes_per_rank each, not overlapping. Collective; enqueued in the stream like
/// an exchange.
Status all_to_all(Communicator& communicator, const void* send, void* recv, std::size_t bytes_per_rank,
                  Stream& stream);

}  // namespace egt
