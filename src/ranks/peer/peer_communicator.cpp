#include "ranks/peer/peer_communicator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt {
namespace {

constexpr std::size_t host_chunk_bytes = std::size_t{1} << 20;    ///< fits into a cache
constexpr std::size_t gpu_chunk_bytes = std::size_t{64} << 20;    ///< far longer than `meet`
constexpr std::size_t pair_chunk_bytes = std::size_t{256} << 20;  ///< two GPUs: fits the max gradient bucket
constexpr std::size_t alignment_bytes = 256;                      ///< of each rank's part

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// `count` elements at `data`. Each rank reduces `per_rank` of them, the last ones fewer or none.
struct Chunk {
  std::byte* data;
  std::size_t count;
  std::size_t per_rank;
  ElementType type;

  std::size_t first(int rank) const { return std::min(count, static_cast<std::size_t>(rank) * per_rank); }
  std::size_t count_of(int rank) const { return first(rank + 1) - first(rank); }
  std::size_t offset(int rank) const { return first(rank) * size_of(type); }
  std::size_t bytes_of(int rank) const { return count_of(rank) * size_of(type); }
};

class PeerCommunicator final : public Communicator {
 public:
  PeerCommunicator(Device& device, std::unique_ptr<Communicator> inner, std::size_t part_bytes)
      : device_(device), inner_(std::move(inner)), part_bytes_(part_bytes) {}

  Status prepare();
  void join(std::unique_ptr<PeerMemory> memory) { memory_ = std::move(memory); }
  /// Bytes: one part from each rank and the reduced chunk. With two ranks: two whole chunks of the peer.
  static std::size_t memory_bytes(std::size_t part_bytes, std::size_t size) { return 2 * part_bytes * size; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override;
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override {
    return inner_->broadcast(data, bytes, root, stream);
  }
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override {
    return inner_->reduce_scatter(send, recv, recv_count, type, stream);
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    return inner_->all_gather(send, recv, bytes, stream);
  }
  Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                  Stream& stream) override {
    return inner_->exchange(sends, receives, stream);
  }
  Result<std::unique_ptr<Communicator>> split(int group) override { return inner_->split(group); }
  Status check() override;
  void interrupt() override { inner_->interrupt(); }
  void abort() override {
    if (memory_) memory_->give_up();  // first: the abort of `inner_` may wait for the streams
    inner_->abort();
  }

 private:
  Status sum(const Chunk& chunk, Stream& stream);
  Status sum_of_two(const Chunk& chunk, Stream& stream);
  Status add_parts(const Chunk& chunk, Stream& stream);
  /// Barrier of all ranks' streams: work after it runs after all work before it, on every rank.
  Status meet(Stream& stream);
  Status copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
    return bytes > 0 ? device_.copy(to, from, bytes, stream) : Status();
  }
  /// Buffer of a member for the part of a sender.
  std::byte* part_of(int member, int sender) const {
    return memory_->data(member) + static_cast<std::size_t>(sender) * part_bytes_;
  }
  /// Buffer of a member for the sums, in the chunk's layout.
  std::byte* sums_of(int member) const { return part_of(member, size()); }
  /// Signals a member after the work in the stream. `await` makes the stream wait for a sender's signal.
  Status report(int member, PeerSignal which, std::uint32_t number, Stream& stream) {
    return device_.write_signal(memory_->signal(member, which, rank()), number, stream);
  }
  Status await(PeerSignal which, int sender, std::uint32_t number, Stream& stream) {
    return device_.await_signal(memory_->signal(rank(), which, sender), number, stream);
  }

  Device& device_;
  std::unique_ptr<Communicator> inner_;
  const std::size_t part_bytes_;  ///< of one rank's part of a chunk
  std::unique_ptr<PeerMemory> memory_;
  std::uint32_t meetings_ = 0;          ///< calls of `meet` so far; with two ranks: chunks so far
  std::unique_ptr<Event> last_;         ///< end of the newest all-reduce
  std::unique_ptr<Event> made_, sent_;  ///< for two ranks: a chunk is ready, and sent
  std::unique_ptr<Stream> copies_;      ///< for two ranks: sends a chunk while the previous one is added
};

Status PeerCommunicator::prepare() {
  for (auto* event : {&last_, &made_, &sent_}) {
    EGT_TRY_ASSIGN(*event, device_.create_event(EventUse::order));
  }
  if (size() == 2) {
    EGT_TRY_ASSIGN(copies_, device_.create_stream(StreamPriority::high, StreamUse::without_products));
  }
  return check();
}

/// An abort by this rank or a peer ends the signal waits of all enqueued work, so no later all-reduce can be
/// trusted. So this ends the waits, before any thread waits for the streams: an abort of `inner`'s parent
/// reaches only `inner`. A rank that learns of it from a peer reports a timeout, as for a missing peer, so
/// that it waits for the watchdog's decision.
Status PeerCommunicator::check() {
  const Status of_inner = inner_->check();
  if (!memory_) return of_inner;
  const bool was_given_up = memory_->is_given_up();
  if (was_given_up || !of_inner.ok()) memory_->give_up();
  EGT_TRY(of_inner);
  if (was_given_up) return {StatusCode::timeout, "a rank of this host has aborted the peer copies"};
  return {};
}

Status PeerCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  if (type != ElementType::f32 && type != ElementType::bf16)
    return Status(StatusCode::invalid_argument,
                  fmt::format("collectives sum f32 or bf16, not {}", to_string(type)));
  EGT_TRY(check());
  if (size() == 1 || count == 0) return {};
  EGT_TRY(device_.wait(stream, *last_));
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t most = part_bytes_ * ranks / size_of(type);
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t n = std::min(most, count - first);
    const Chunk chunk{static_cast<std::byte*>(data) + first * size_of(type), n,
                      round_up((n + ranks - 1) / ranks, alignment_bytes / size_of(type)), type};
    EGT_TRY(size() == 2 ? sum_of_two(chunk, stream) : sum(chunk, stream));
  }
  return device_.record(*last_, stream);
}

/// All-reduces a chunk: copies parts, `meet`, reduces, copies results, `meet`. Peers write parts of the next
/// chunk after the second `meet`, when all parts are reduced. They write its results after the next chunk's
/// first `meet`, when these results have been read.
Status PeerCommunicator::sum(const Chunk& chunk, Stream& stream) {
  for (int turn = 1; turn < size(); ++turn) {  // from the next rank on, so first peers are distinct
    const int peer = (rank() + turn) % size();
    EGT_TRY(copy(part_of(peer, rank()), chunk.data + chunk.offset(peer), chunk.bytes_of(peer), stream));
  }
  EGT_TRY(meet(stream));
  EGT_TRY(add_parts(chunk, stream));
  const std::size_t before = chunk.offset(rank()), after = chunk.offset(rank() + 1);
  for (int turn = 1; turn < size(); ++turn)
    EGT_TRY(copy(sums_of((rank() + turn) % size()) + before, chunk.data + before, after - before, stream));
  EGT_TRY(meet(stream));
  const std::byte* const sums = sums_of(rank());
  EGT_TRY(copy(chunk.data, sums, before, stream));
  return copy(chunk.data + after, sums + after, chunk.count * size_of(chunk.type) - after, stream);
}

/// All-reduces a chunk of two ranks. Each sends its whole chunk, as many bytes as one part and its result
/// back, and adds the peer's, since the order of two terms does not matter. Only the addition uses SMs, so
/// concurrent GEMMs keep theirs. A buffer is written again once the peer has added its content.
Status PeerCommunicator::sum_of_two(const Chunk& chunk, Stream& stream) {
  const int peer = 1 - rank();
  const std::uint32_t number = ++meetings_;
  const std::size_t bytes = chunk.count * size_of(chunk.type);
  const auto place = [&](int member) { return memory_->data(member) + number % 2 * 2 * part_bytes_; };
  EGT_TRY(device_.record(*made_, stream));
  EGT_TRY(device_.wait(*copies_, *made_));
  if (number > 2) EGT_TRY(await(PeerSignal::taken, peer, number - 2, *copies_));
  EGT_TRY(copy(place(peer), chunk.data, bytes, *copies_));
  EGT_TRY(report(peer, PeerSignal::come, number, *copies_));
  EGT_TRY(device_.record(*sent_, *copies_));
  EGT_TRY(device_.wait(stream, *sent_));  // from here on the result overwrites what was sent
  EGT_TRY(await(PeerSignal::come, peer, number, stream));
  const auto elements = static_cast<std::int64_t>(chunk.count);
  EGT_TRY(device_.add({chunk.data, chunk.type, elements}, {place(rank()), chunk.type, elements}, stream));
  return report(peer, PeerSignal::taken, number, stream);
}

/// Reduces in rank order, in place. The parts of lower ranks are summed in the buffer of rank 0's part, and
/// that sum is added to this rank's part as one term. Addition is commutative, so the result is the same.
Status PeerCommunicator::add_parts(const Chunk& chunk, Stream& stream) {
  const auto elements = static_cast<std::int64_t>(chunk.count_of(rank()));
  if (elements == 0) return {};
  const auto part = [&](int sender) { return VectorView{part_of(rank(), sender), chunk.type, elements}; };
  const VectorView own{chunk.data + chunk.offset(rank()), chunk.type, elements};
  for (int lower = 1; lower < rank(); ++lower) EGT_TRY(device_.add(part(0), part(lower), stream));
  if (rank() > 0) EGT_TRY(device_.add(own, part(0), stream));
  for (int higher = rank() + 1; higher < size(); ++higher) EGT_TRY(device_.add(own, part(higher), stream));
  return {};
}

Status PeerCommunicator::meet(Stream& stream) {
  ++meetings_;
  for (int turn = 1; turn < size(); ++turn)
    EGT_TRY(report((rank() + turn) % size(), PeerSignal::come, meetings_, stream));
  for (int turn = 1; turn < size(); ++turn)
    EGT_TRY(await(PeerSignal::come, (rank() + turn) % size(), meetings_, stream));
  return {};
}

Status check_request(const Communicator* inner, const std::vector<int>& ranks, int own_rank) {
  const auto wrong = [](const std::string& what) {
    return Status(StatusCode::invalid_argument, "peer copies: " + what);
  };
  const int size = inner ? inner->size() : 0;
  if (static_cast<std::size_t>(size) != ranks.size())
    return wrong(fmt::format("{} ranks are named for a communicator of {}", ranks.size(), size));
  if (inner && ranks[static_cast<std::size_t>(inner->rank())] != own_rank)
    return wrong(fmt::format("rank {} is {} in the communicator, and not so in the list of ranks", own_rank,
                             inner->rank()));
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             std::size_t chunk_bytes) {
  if (chunk_bytes == 0)
    chunk_bytes = device.info().backend == "host" ? host_chunk_bytes
                  : ranks.size() == 2             ? pair_chunk_bytes
                                                  : gpu_chunk_bytes;
  EGT_TRY(agree(control, check_request(inner.get(), ranks, control.place().rank)));
  EGT_TRY(agree_on_text(control, std::to_string(chunk_bytes), "the chunks of peer copies"));
  const std::size_t members = std::max<std::size_t>(1, ranks.size());
  const std::size_t part_bytes = round_up((chunk_bytes + members - 1) / members, alignment_bytes);
  std::unique_ptr<PeerCommunicator> made;
  Status prepared;
  if (inner) {
    made = std::make_unique<PeerCommunicator>(device, std::move(inner), part_bytes);
    prepared = made->prepare();
  }
  EGT_TRY(agree(control, prepared));
  EGT_TRY_ASSIGN(
      std::unique_ptr<PeerMemory> memory,
      PeerMemory::open(device, control, PeerCommunicator::memory_bytes(part_bytes, members), ranks));
  if (made) made->join(std::move(memory));
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace egt
