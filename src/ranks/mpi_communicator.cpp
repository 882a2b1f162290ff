#include "egt/ranks/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "egt/device/host/host_stream.hpp"
#include "egt/ranks/messages.hpp"
#include "mpi_session_impl.hpp"
#include "mpi_transfer.hpp"
#include "reduce.hpp"

namespace egt {
namespace {

/// Bytes of a collective that are sent and summed together: large enough for the full rate, small enough for
/// a cache.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::size_t stages = 3;  ///< chunks of an all-reduce under way: scatter, sum and gather

/// Tags of one communicator: two for each of `calls` collectives, one for each of `calls` messages of a pair.
/// So many may be under way at once.
constexpr int calls = 4096;
constexpr int tags_of_one = 3 * calls;

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

/// The MPI communicator of all ranks that were opened together: it serves all that is split from it, each
/// with tags of its own.
class World {
 public:
  World(MpiSession::Impl& s, MPI_Comm c) : session(s), comm(c) {}
  ~World() {
    if (!spoiled && !session.abandoned) MPI_Comm_free(&comm);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The first tag of the communicator with this number.
  int first_tag(std::uint64_t number) const;

  MpiSession::Impl& session;
  MPI_Comm comm;
  std::atomic<bool> spoiled{false};           ///< something was given up: MPI may still work on it
  std::atomic<std::uint64_t> next_number{1};  ///< no communicator with it or a higher one has this rank
};

int World::first_tag(std::uint64_t number) const {
  int* highest = nullptr;
  int known = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, &highest, &known);
  const int places = (known ? *highest : 32767) / tags_of_one;  // MPI promises tags up to 32767
  return static_cast<int>(number % static_cast<std::uint64_t>(places)) * tags_of_one;
}

/// What the communicator and its tasks share; alive until the last task is over.
struct Shared {
  Shared(std::shared_ptr<World> w, std::vector<int> members, int own, std::uint64_t number, double seconds)
      : world(std::move(w)),
        ranks{world->comm, std::move(members)},
        rank(own),
        size(static_cast<int>(ranks.members.size())),
        first_tag(world->first_tag(number)),
        timeout_seconds(seconds) {}

  Status failure();
  void fail(const Status& status);
  /// Both reach what was split from this one.
  void interrupt();
  void abort();
  void add_child(const std::shared_ptr<Shared>& child);
  std::shared_ptr<Scratch> take_scratch(std::size_t bytes);
  void give_scratch(std::shared_ptr<Scratch> scratch);

  const std::shared_ptr<World> world;
  const MpiRanks ranks;
  const int rank;
  const int size;
  const int first_tag;
  const double timeout_seconds;
  std::atomic<bool> interrupted{false};  ///< for calls and their waits
  std::atomic<bool> aborted{false};      ///< for tasks too

 private:
  std::vector<std::shared_ptr<Shared>> children();

  std::mutex mutex_;
  Status failure_;                                 ///< the first
  std::vector<std::shared_ptr<Scratch>> scratch_;  ///< not in use
  std::vector<std::weak_ptr<Shared>> children_;
};

Status Shared::failure() {
  if (aborted) return {StatusCode::aborted, "the communicator was given up"};
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<std::shared_ptr<Shared>> Shared::children() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Shared>> alive;
  for (const auto& child : children_)
    if (auto one = child.lock()) alive.push_back(std::move(one));
  return alive;
}

void Shared::add_child(const std::shared_ptr<Shared>& child) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& one) { return one.expired(); });
    children_.push_back(child);
  }
  // Where it was too late for the list.
  if (interrupted) child->interrupt();
  if (aborted) child->abort();
}

void Shared::interrupt() {
  interrupted = true;
  for (const auto& child : children()) child->interrupt();
}

void Shared::abort() {
  world->spoiled = true;
  interrupted = true;
  aborted = true;
  for (const auto& child : children()) child->abort();
}

void Shared::fail(const Status& status) {
  world->spoiled = true;
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

TransferLimits limits_from_now(const Shared& shared, const std::atomic<bool>& ended) {
  const std::chrono::duration<double> seconds(shared.timeout_seconds);
  return {Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds), shared.timeout_seconds, ended};
}

/// What a rank brings to a split.
struct Choice {
  std::int64_t group;
  std::uint64_t next_number;  ///< World's
};

/// One collective while it runs: its tags, its limits and its transfers, which end with it or go to the
/// session.
class Collective {
 public:
  /// `sequence`: the same on all ranks, another for each collective. `ended`: what gives it up.
  Collective(Shared& shared, std::size_t sequence, const std::atomic<bool>& ended)
      : shared_(shared),
        tag_(shared.first_tag + static_cast<int>(sequence % calls) * 2),
        limits_(limits_from_now(shared, ended)),
        transfers_{MpiTransfer(shared.ranks), MpiTransfer(shared.ranks), MpiTransfer(shared.ranks)} {}

  Status all_reduce(std::byte* data, std::size_t count, ElementType type);
  Status broadcast(std::byte* data, std::size_t bytes, int root);
  Status reduce_scatter(const std::byte* send, std::byte* recv, std::size_t recv_count, ElementType type);
  Status all_gather(const std::byte* send, std::byte* recv, std::size_t bytes);
  /// `choices`: of all ranks, with this rank's at its place.
  Status gather_choices(std::vector<Choice>& choices);

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

Status Collective::gather_choices(std::vector<Choice>& choices) {
  const std::size_t bytes = choices.size() * sizeof(Choice), own = static_cast<std::size_t>(shared_.rank);
  scratch_ = shared_.take_scratch(bytes);  // which stays where MPI still works on it
  std::memcpy(scratch_->data() + own * sizeof(Choice), &choices[own], sizeof(Choice));
  EGT_TRY(all_gather(scratch_->data() + own * sizeof(Choice), scratch_->data(), sizeof(Choice)));
  std::memcpy(choices.data(), scratch_->data(), bytes);
  return {};
}

Status Collective::end(Status status) {
  if (status.ok()) {
    if (scratch_) shared_.give_scratch(std::move(scratch_));
    return {};
  }
  for (MpiTransfer& transfer : transfers_)
    if (auto left = transfer.withdraw(); !left.empty())
      shared_.world->session.adopt({std::move(left), scratch_});
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

struct Tagged {
  Message message;
  int tag;
};

Status run_exchange(Shared& shared, const std::vector<Tagged>& sends, const std::vector<Tagged>& receives) {
  MpiExchange exchange(shared.ranks);
  for (const auto& [message, tag] : receives)
    exchange.receive(bytes_of(message.data), message.bytes, message.peer, tag);
  for (const auto& [message, tag] : sends)
    exchange.send(bytes_of(message.data), message.bytes, message.peer, tag);
  const Status status = exchange.run(limits_from_now(shared, shared.aborted));
  if (status.ok()) return {};
  if (auto left = exchange.withdraw(); !left.empty()) shared.world->session.adopt({std::move(left), {}});
  shared.fail(status);
  return status;
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)),
        sent_(static_cast<std::size_t>(shared_->size)),
        received_(static_cast<std::size_t>(shared_->size)) {}

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

  Status exchange(std::span<const Message> sends, std::span<const Message> receives, Stream& stream) override;
  Result<std::unique_ptr<Communicator>> split(int group) override;

  Status check() override {
    if (shared_->interrupted) return {StatusCode::aborted, "the communicator is given up"};
    return shared_->failure();
  }
  void interrupt() override { shared_->interrupt(); }
  void abort() override { shared_->abort(); }

 private:
  /// Puts `work` in the stream as the next collective.
  template <typename Work>
  Status enqueue(Stream& stream, Work work) {
    EGT_TRY(check());
    as_host_stream(stream).enqueue([shared = shared_, sequence = sequence_++, work]() -> Status {
      EGT_TRY(shared->failure());
      Collective collective(*shared, sequence, shared->aborted);
      return collective.end(work(collective));
    });
    return {};
  }
  /// Those of `messages` that go to or come from others, with their tags; `counts` has the pairs' so far.
  std::vector<Tagged> tag(std::span<const Message> messages, std::vector<std::size_t>& counts) const;

  std::shared_ptr<Shared> shared_;
  std::size_t sequence_ = 0;           ///< collectives so far: the same on all ranks
  std::vector<std::size_t> sent_;      ///< messages to each rank so far
  std::vector<std::size_t> received_;  ///< messages from each rank so far
};

std::vector<Tagged> MpiCommunicator::tag(std::span<const Message> messages,
                                         std::vector<std::size_t>& counts) const {
  std::vector<Tagged> tagged;
  for (const Message& message : messages) {
    if (message.peer == rank()) continue;
    const std::size_t number = counts[static_cast<std::size_t>(message.peer)]++;
    tagged.push_back({message, shared_->first_tag + 2 * calls + static_cast<int>(number % calls)});
  }
  return tagged;
}

Status MpiCommunicator::exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 Stream& stream) {
  EGT_TRY_ASSIGN(auto own, own_messages(sends, receives, rank(), size()));
  EGT_TRY(check());
  as_host_stream(stream).enqueue([shared = shared_, own = std::move(own), sends = tag(sends, sent_),
                                  receives = tag(receives, received_)]() -> Status {
    EGT_TRY(shared->failure());
    for (const OwnMessage& message : own)
      if (message.from != message.to) std::memcpy(message.to, message.from, message.bytes);
    return run_exchange(*shared, sends, receives);
  });
  return {};
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::split(int group) {
  EGT_TRY(check());
  World& world = *shared_->world;
  std::vector<Choice> choices(static_cast<std::size_t>(size()));
  choices[static_cast<std::size_t>(rank())] = {group, world.next_number};
  Collective collective(*shared_, sequence_++, shared_->interrupted);
  EGT_TRY(collective.end(collective.gather_choices(choices)));
  // The same on all ranks, and new to each: so no two communicators of one pair have the same.
  std::uint64_t number = 0;
  std::vector<int> members;
  int own = 0;
  for (int r = 0; r < size(); ++r) {
    const Choice& choice = choices[static_cast<std::size_t>(r)];
    number = std::max(number, choice.next_number);
    if (r == rank()) own = static_cast<int>(members.size());
    if (choice.group == group) members.push_back(shared_->ranks.at(r));
  }
  world.next_number = number + 1;
  if (group < 0) return std::unique_ptr<Communicator>();
  const auto child =
      std::make_shared<Shared>(shared_->world, std::move(members), own, number, shared_->timeout_seconds);
  shared_->add_child(child);
  return std::unique_ptr<Communicator>(new MpiCommunicator(child));
}

}  // namespace

Result<std::unique_ptr<Communicator>> open_mpi_communicator(MpiSession& session, double timeout_seconds) {
  EGT_TRY_ASSIGN(const MPI_Comm comm, session.impl().duplicate(timeout_seconds));
  const RankPlace& place = session.place();
  std::vector<int> all(static_cast<std::size_t>(place.size));
  std::iota(all.begin(), all.end(), 0);
  return std::unique_ptr<Communicator>(new MpiCommunicator(std::make_shared<Shared>(
      std::make_shared<World>(session.impl(), comm), std::move(all), place.rank, 0, timeout_seconds)));
}

}  // namespace egt
