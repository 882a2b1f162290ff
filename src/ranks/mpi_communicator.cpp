#include "egt/ranks/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "egt/device/host/host_stream.hpp"
#include "mpi_session_impl.hpp"
#include "mpi_transfer.hpp"
#include "reduce.hpp"

namespace egt {
namespace {

/// Bytes of a collective that are sent and summed together: large enough for the full rate, small enough for
/// a cache.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t stages = 3;  ///< chunks of an all-reduce under way: scatter, sum and gather

using Scratch = std::vector<std::byte>;

/// The part [first, first + count) of n elements that `rank` of `size` ranks sums.
struct Share {
  std::size_t first;
  std::size_t count;
};

Share share_of(std::size_t n, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank), s = static_cast<std::size_t>(size);
  const std::size_t first = n / s * r + std::min(n % s, r);
  return {first, n / s + (r < n % s ? 1 : 0)};
}

/// What the communicator and its tasks share; alive until the last task is over.
struct Shared {
  Shared(MpiSession::Impl& s, MPI_Comm c, double seconds)
      : session(s), comm(c), rank(s.place.rank), size(s.place.size), timeout_seconds(seconds) {}
  ~Shared();

  Status failure();
  void fail(const Status& status);
  std::shared_ptr<Scratch> take_scratch(std::size_t bytes);
  void give_scratch(std::shared_ptr<Scratch> scratch);

  MpiSession::Impl& session;
  MPI_Comm comm;
  const int rank;
  const int size;
  const double timeout_seconds;
  std::atomic<bool> aborted{false};

 private:
  std::mutex mutex_;
  Status failure_;                                 ///< the first
  std::vector<std::shared_ptr<Scratch>> scratch_;  ///< not in use
};

Shared::~Shared() {
  if (!aborted && failure_.ok() && !session.abandoned) MPI_Comm_free(&comm);
}

Status Shared::failure() {
  if (aborted) return {StatusCode::aborted, "the communicator was given up"};
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Shared::fail(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

std::shared_ptr<Scratch> Shared::take_scratch(std::size_t bytes) {
  std::shared_ptr<Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    if (!scratch_.empty()) {
      scratch = std::move(scratch_.back());
      scratch_.pop_back();
    }
  }
  if (!scratch) scratch = std::make_shared<Scratch>();
  if (scratch->size() < bytes) scratch->resize(bytes);
  return scratch;
}

void Shared::give_scratch(std::shared_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  scratch_.push_back(std::move(scratch));
}

/// One collective while it runs: its tags, its limits and its transfers, which end with it or go to the
/// session.
class Collective {
 public:
  /// `sequence`: the same on all ranks, another for each collective.
  Collective(Shared& shared, std::size_t sequence)
      : shared_(shared),
        tag_(static_cast<int>(sequence % 8192) * 2),  // MPI promises tags up to 32767
        limits_{Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(shared.timeout_seconds)),
                shared.timeout_seconds, shared.aborted},
        transfers_{MpiTransfer(shared.comm), MpiTransfer(shared.comm), MpiTransfer(shared.comm)} {}

  Status all_reduce(std::byte* data, std::size_t count, ElementType type);
  Status broadcast(std::byte* data, std::size_t bytes, int root);
  Status reduce_scatter(const std::byte* send, std::byte* recv, std::size_t recv_count, ElementType type);
  Status all_gather(const std::byte* send, std::byte* recv, std::size_t bytes);

  /// Gives the scratch back, or leaves it and what is under way to the session.
  Status end(Status status);

 private:
  /// A chunk of the all-reduce: `count` elements from `data`, and where the peers' parts of this rank's
  /// share come to.
  struct Chunk {
    std::byte* data;
    std::size_t count;
    std::byte* parts;
    MpiTransfer* transfer;
  };
  Status scatter(const Chunk& chunk, std::size_t width);
  Status sum_and_gather(const Chunk& chunk, ElementType type);
  /// Waits for the peers' parts of `count` elements, and sums them and `own` in rank order.
  Status sum(MpiTransfer& transfer, const std::byte* peers, const std::byte* own, std::byte* out,
             std::size_t count, ElementType type);

  Shared& shared_;
  const int tag_;
  const TransferLimits limits_;
  std::array<MpiTransfer, stages> transfers_;
  std::shared_ptr<Scratch> scratch_;
};

/// Sends every peer its share of the chunk, and receives all peers' parts of this rank's.
Status Collective::scatter(const Chunk& chunk, std::size_t width) {
  const std::size_t mine = share_of(chunk.count, shared_.rank, shared_.size).count * width;
  std::byte* part = chunk.parts;
  for (int peer = 0; peer < shared_.size; ++peer) {
    if (peer == shared_.rank) continue;
    const Share theirs = share_of(chunk.count, peer, shared_.size);
    EGT_TRY(chunk.transfer->receive(part, mine, peer, tag_));
    EGT_TRY(chunk.transfer->send(chunk.data + theirs.first * width, theirs.count * width, peer, tag_));
    part += mine;
  }
  return {};
}

Status Collective::sum(MpiTransfer& transfer, const std::byte* peers, const std::byte* own, std::byte* out,
                       std::size_t count, ElementType type) {
  EGT_TRY(transfer.finish(limits_));
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < shared_.size; ++rank) {
    parts.push_back(rank == shared_.rank ? own : peers);
    if (rank != shared_.rank) peers += count * size_of(type);
  }
  reduce_sum(out, parts, count, type);
  return {};
}

/// Sums this rank's share in rank order, sends it to all, and receives the other shares in place.
Status Collective::sum_and_gather(const Chunk& chunk, ElementType type) {
  const std::size_t width = size_of(type);
  const Share mine = share_of(chunk.count, shared_.rank, shared_.size);
  std::byte* own = chunk.data + mine.first * width;
  EGT_TRY(sum(*chunk.transfer, chunk.parts, own, own, mine.count, type));
  for (int peer = 0; peer < shared_.size; ++peer) {
    if (peer == shared_.rank) continue;
    const Share theirs = share_of(chunk.count, peer, shared_.size);
    EGT_TRY(chunk.transfer->receive(chunk.data + theirs.first * width, theirs.count * width, peer, tag_ + 1));
    EGT_TRY(chunk.transfer->send(own, mine.count * width, peer, tag_ + 1));
  }
  return {};
}

Status Collective::all_reduce(std::byte* data, std::size_t count, ElementType type) {
  if (shared_.size == 1) return {};  // the identity, also for a NaN
  const std::size_t width = size_of(type), per_chunk = std::min(count, chunk_bytes / width);
  const std::size_t chunks = count == 0 ? 0 : (count + per_chunk - 1) / per_chunk;
  const auto size = static_cast<std::size_t>(shared_.size);
  const std::size_t parts_bytes = (per_chunk / size + 1) * width * (size - 1);
  scratch_ = shared_.take_scratch(parts_bytes * stages);
  const auto chunk = [&](std::size_t i) -> Chunk {
    return {data + i * per_chunk * width, std::min(per_chunk, count - i * per_chunk),
            scratch_->data() + i % stages * parts_bytes, &transfers_[i % stages]};
  };
  // A chunk's parts are under way while the one before it is summed and the one before that comes back.
  for (std::size_t i = 0; i < chunks + stages - 1; ++i) {
    if (i < chunks) EGT_TRY(scatter(chunk(i), width));
    if (i >= 1 && i - 1 < chunks) EGT_TRY(sum_and_gather(chunk(i - 1), type));
    if (i >= 2) EGT_TRY(transfers_[(i - 2) % stages].finish(limits_));
  }
  return {};
}

/// A binomial tree, counted from the root: a rank's parent is the rank without its lowest bit. A chunk is
/// passed on while the next one comes.
Status Collective::broadcast(std::byte* data, std::size_t bytes, int root) {
  const int place = (shared_.rank - root + shared_.size) % shared_.size;
  const auto rank_at = [&](int p) { return (p + root) % shared_.size; };
  MpiTransfer &incoming = transfers_[0], &outgoing = transfers_[1];
  const auto receive = [&](std::size_t first) -> Status {
    if (place == 0 || first >= bytes) return {};
    return incoming.receive(data + first, std::min(chunk_bytes, bytes - first), rank_at(place & (place - 1)),
                            tag_);
  };
  EGT_TRY(receive(0));
  for (std::size_t first = 0; first < bytes; first += chunk_bytes) {
    EGT_TRY(incoming.finish(limits_));
    EGT_TRY(receive(first + chunk_bytes));
    EGT_TRY(outgoing.finish(limits_));
    for (int bit = 1; place + bit < shared_.size && (place & bit) == 0; bit <<= 1)
      EGT_TRY(outgoing.send(data + first, std::min(chunk_bytes, bytes - first), rank_at(place + bit), tag_));
  }
  return outgoing.finish(limits_);
}

Status Collective::reduce_scatter(const std::byte* send, std::byte* recv, std::size_t recv_count,
                                  ElementType type) {
  const std::size_t width = size_of(type), slice = recv_count * width;
  const auto size = static_cast<std::size_t>(shared_.size), rank = static_cast<std::size_t>(shared_.rank);
  if (size == 1) {  // the identity, also for a NaN
    if (slice > 0 && recv != send) std::memcpy(recv, send, slice);
    return {};
  }
  const std::size_t piece = std::min(slice, chunk_bytes / size / width * width);
  const std::size_t pieces = slice == 0 ? 0 : (slice + piece - 1) / piece;
  scratch_ = shared_.take_scratch(piece * (size - 1) * 2);
  const auto parts = [&](std::size_t i) { return scratch_->data() + i % 2 * piece * (size - 1); };
  const auto bytes = [&](std::size_t i) { return std::min(piece, slice - i * piece); };
  const auto exchange = [&](std::size_t i) -> Status {
    std::byte* part = parts(i);
    for (int peer = 0; peer < shared_.size; ++peer) {
      if (peer == shared_.rank) continue;
      const std::byte* theirs = send + static_cast<std::size_t>(peer) * slice + i * piece;
      EGT_TRY(transfers_[i % 2].receive(part, bytes(i), peer, tag_));
      EGT_TRY(transfers_[i % 2].send(theirs, bytes(i), peer, tag_));
      part += bytes(i);
    }
    return {};
  };
  // A piece's parts are under way while the one before it is summed.
  for (std::size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) EGT_TRY(exchange(i));
    if (i == 0) continue;
    const std::size_t first = (i - 1) * piece;
    EGT_TRY(sum(transfers_[(i - 1) % 2], parts(i - 1), send + rank * slice + first, recv + first,
                bytes(i - 1) / width, type));
  }
  return {};
}

Status Collective::all_gather(const std::byte* send, std::byte* recv, std::size_t bytes) {
  std::byte* own = recv + static_cast<std::size_t>(shared_.rank) * bytes;
  if (bytes > 0 && own != send) std::memmove(own, send, bytes);
  MpiTransfer& transfer = transfers_[0];
  for (std::size_t first = 0; first < bytes; first += chunk_bytes) {
    const std::size_t n = std::min(chunk_bytes, bytes - first);
    for (int peer = 0; peer < shared_.size; ++peer) {
      if (peer == shared_.rank) continue;
      EGT_TRY(transfer.receive(recv + static_cast<std::size_t>(peer) * bytes + first, n, peer, tag_));
      EGT_TRY(transfer.send(own + first, n, peer, tag_));
    }
    EGT_TRY(transfer.finish(limits_));
  }
  return {};
}

Status Collective::end(Status status) {
  if (status.ok()) {
    if (scratch_) shared_.give_scratch(std::move(scratch_));
    return {};
  }
  for (MpiTransfer& transfer : transfers_)
    if (auto left = transfer.withdraw(); !left.empty()) shared_.session.adopt({std::move(left), scratch_});
  shared_.fail(status);
  return status;
}

std::byte* bytes_of(void* data) {
  return static_cast<std::byte*>(data);
}

Status can_sum(ElementType type) {
  if (type == ElementType::f32 || type == ElementType::bf16) return {};
  return {StatusCode::invalid_argument, "collectives sum f32 or bf16 only"};
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  int rank() const override { return shared_->rank; }
  int size() const override { return shared_->size; }

  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override {
    EGT_TRY(can_sum(type));
    return enqueue(stream, [=](Collective& c) { return c.all_reduce(bytes_of(data), count, type); });
  }
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override {
    if (root < 0 || root >= size()) return {StatusCode::invalid_argument, "the broadcast's root is no rank"};
    return enqueue(stream, [=](Collective& c) { return c.broadcast(bytes_of(data), bytes, root); });
  }
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override {
    EGT_TRY(can_sum(type));
    return enqueue(stream, [=](Collective& c) {
      return c.reduce_scatter(static_cast<const std::byte*>(send), bytes_of(recv), recv_count, type);
    });
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    return enqueue(stream, [=](Collective& c) {
      return c.all_gather(static_cast<const std::byte*>(send), bytes_of(recv), bytes);
    });
  }

  Status check() override { return shared_->failure(); }
  void abort() override { shared_->aborted = true; }

 private:
  /// Puts `work` in the stream as the next collective.
  template <typename Work>
  Status enqueue(Stream& stream, Work work) {
    EGT_TRY(check());
    as_host_stream(stream).enqueue([shared = shared_, sequence = sequence_++, work]() -> Status {
      EGT_TRY(shared->failure());
      Collective collective(*shared, sequence);
      return collective.end(work(collective));
    });
    return {};
  }

  std::shared_ptr<Shared> shared_;
  std::size_t sequence_ = 0;  ///< collectives so far: the same on all ranks
};

}  // namespace

Result<std::unique_ptr<Communicator>> open_mpi_communicator(MpiSession& session, double timeout_seconds) {
  EGT_TRY_ASSIGN(const MPI_Comm comm, session.impl().duplicate(timeout_seconds));
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(std::make_shared<Shared>(session.impl(), comm, timeout_seconds)));
}

}  // namespace egt
