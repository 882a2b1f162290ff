#include "ranks/peer/peer_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt {
namespace {

constexpr std::size_t host_chunk_bytes = std::size_t{1} << 20;  ///< stays in a cache
/// A chunk is some 12 calls to the driver between two ranks, 19 among four: smaller ones would be copied
/// before the next are enqueued.
constexpr std::size_t gpu_chunk_bytes = std::size_t{32} << 20;
/// So many chunks at least, where they are not too small: their copies and sums then overlap.
constexpr std::size_t wanted_chunks = 4, smallest_part_of_chunk = 8;
constexpr std::size_t alignment_bytes = 256;  ///< of each rank's part

constexpr std::size_t round_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

/// The flags of a member, one of each kind for each peer; what they count are chunks. `summed` is the
/// member's own.
enum FlagKind : std::size_t { parts_came, parts_taken, sums_came, sums_taken, summed, flag_kinds };

/// The chunk that is enqueued: `count` elements from `data`, of which each rank sums `per_rank`, the last
/// ones fewer or none.
struct Chunk {
  std::byte* data;
  std::size_t count;
  std::size_t per_rank;
  ElementType type;
  std::uint32_t number;  ///< of all chunks so far; the same on all ranks

  std::size_t first(int rank) const { return std::min(count, static_cast<std::size_t>(rank) * per_rank); }
  std::size_t count_of(int rank) const { return first(rank + 1) - first(rank); }
  std::byte* part(int rank) const { return data + first(rank) * size_of(type); }
  std::size_t bytes_of(int rank) const { return count_of(rank) * size_of(type); }
};

/// Four streams do the work of a chunk, one step each, so that the steps of several chunks overlap. Would
/// each rank do all of them one by one, in the order in which they are enqueued, they would still come to
/// their end: so it does no harm where the driver puts streams into one line.
class PeerCommunicator final : public Communicator {
 public:
  PeerCommunicator(Device& device, std::unique_ptr<Communicator> inner, const PeerOptions& options,
                   std::size_t part_bytes)
      : device_(device), inner_(std::move(inner)), options_(options), part_bytes_(part_bytes) {}
  ~PeerCommunicator() override;

  Status prepare();
  void join(std::unique_ptr<PeerMemory> memory) { memory_ = std::move(memory); }
  static std::size_t memory_bytes(std::size_t part_bytes, int slots, std::size_t size) {
    return 2 * part_bytes * size * static_cast<std::size_t>(slots);
  }

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
  void abort() override;

 private:
  enum Step : std::size_t { push_parts_step, sum_step, push_sums_step, take_sums_step, steps };

  Stream& stream_of(Step step) { return *streams_[step]; }
  Flag flag(int member, FlagKind kind, int peer, std::uint32_t value) const {
    return {memory_->flag(member, kind * static_cast<std::size_t>(size()) + static_cast<std::size_t>(peer)),
            value};
  }
  /// This rank's flags of that kind, of all peers.
  std::vector<Flag> from_peers(FlagKind kind, std::uint32_t value) const;
  /// The flags of that kind of all peers that are this rank's to write.
  std::vector<Flag> to_peers(FlagKind kind, std::uint32_t value) const;
  Status await(const std::vector<Flag>& flags, Step step) {
    return device_.await(flags, options_.timeout_seconds, gate_, stream_of(step));
  }
  Status signal(const std::vector<Flag>& flags, Step step) {
    return device_.signal(flags, gate_, stream_of(step));
  }
  Status copy(void* to, const void* from, std::size_t bytes, Step step) {
    return bytes > 0 ? device_.copy(to, from, bytes, stream_of(step)) : Status();
  }
  /// The peers, from the next one on: so no two ranks begin with the same.
  int next_peer(int turn) const { return (rank() + turn) % size(); }

  std::size_t slot(const Chunk& chunk) const {
    return chunk.number % static_cast<std::uint32_t>(options_.slots);
  }
  /// Where a member gets the part of a sender.
  std::byte* part_slot(int member, int sender, const Chunk& chunk) const;
  /// Where a member gets the sums, laid out as the chunk.
  std::byte* sums_slot(int member, const Chunk& chunk) const;
  /// What chunk number `chunk` waits for, so that its slot is free.
  std::uint32_t taken_before(const Chunk& chunk) const {
    return chunk.number + 1 - static_cast<std::uint32_t>(options_.slots);
  }

  std::size_t chunk_elements(std::size_t count, ElementType type) const;
  Status begin(Stream& stream);
  Status enqueue(const Chunk& chunk);
  Status push_parts(const Chunk& chunk);
  Status sum(const Chunk& chunk);
  Status push_sums(const Chunk& chunk);
  Status take_sums(const Chunk& chunk);
  Status end(Stream& stream);

  Device& device_;
  std::unique_ptr<Communicator> inner_;
  const PeerOptions options_;
  const std::size_t part_bytes_;  ///< of a slot for one rank's part of a chunk
  std::unique_ptr<PeerMemory> memory_;
  std::shared_ptr<FlagGate> gate_;
  std::unique_ptr<Event> begun_;
  std::array<std::unique_ptr<Event>, steps> ended_;
  std::array<std::unique_ptr<Stream>, steps> streams_;
  std::uint32_t chunks_ = 0;  ///< enqueued so far
};

Status PeerCommunicator::prepare() {
  EGT_TRY_ASSIGN(gate_, FlagGate::make(device_));
  EGT_TRY_ASSIGN(begun_, device_.create_event(EventUse::order));
  for (std::size_t step = 0; step < steps; ++step) {
    EGT_TRY_ASSIGN(streams_[step], device_.create_stream(StreamPriority::high, StreamUse::without_products));
    EGT_TRY_ASSIGN(ended_[step], device_.create_event(EventUse::order));
  }
  return {};
}

PeerCommunicator::~PeerCommunicator() {
  if (!memory_) return;
  if (!check().ok()) gate_->give_up();
  // Peers may still need what is under way; each wait in it is bounded.
  for (const std::unique_ptr<Stream>& stream : streams_)
    if (device_.synchronize(*stream, options_.timeout_seconds).code() == StatusCode::timeout)
      gate_->give_up();
  for (std::unique_ptr<Stream>& stream : streams_) stream.reset();  // before the memory that they use
}

Status PeerCommunicator::check() {
  EGT_TRY(gate_->status());
  return inner_->check();
}

void PeerCommunicator::abort() {
  gate_->give_up();
  inner_->abort();
}

std::vector<Flag> PeerCommunicator::from_peers(FlagKind kind, std::uint32_t value) const {
  std::vector<Flag> flags;
  for (int turn = 1; turn < size(); ++turn) flags.push_back(flag(rank(), kind, next_peer(turn), value));
  return flags;
}

std::vector<Flag> PeerCommunicator::to_peers(FlagKind kind, std::uint32_t value) const {
  std::vector<Flag> flags;
  for (int turn = 1; turn < size(); ++turn) flags.push_back(flag(next_peer(turn), kind, rank(), value));
  return flags;
}

std::byte* PeerCommunicator::part_slot(int member, int sender, const Chunk& chunk) const {
  const std::size_t part = slot(chunk) * static_cast<std::size_t>(size()) + static_cast<std::size_t>(sender);
  return memory_->data(member) + part * part_bytes_;
}

std::byte* PeerCommunicator::sums_slot(int member, const Chunk& chunk) const {
  const std::size_t slots = static_cast<std::size_t>(options_.slots) + slot(chunk);
  return memory_->data(member) + slots * static_cast<std::size_t>(size()) * part_bytes_;
}

std::size_t PeerCommunicator::chunk_elements(std::size_t count, ElementType type) const {
  const std::size_t most = part_bytes_ * static_cast<std::size_t>(size()) / size_of(type);
  const std::size_t wanted = std::max(count / wanted_chunks, most / smallest_part_of_chunk);
  return std::min(most, round_up(wanted + 1, alignment_bytes));
}

Status PeerCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  if (type != ElementType::f32 && type != ElementType::bf16)
    return Status(StatusCode::invalid_argument,
                  fmt::format("collectives sum f32 or bf16, not {}", to_string(type)));
  EGT_TRY(check());
  if (size() == 1 || count == 0) return {};
  EGT_TRY(begin(stream));
  const std::size_t most = chunk_elements(count, type);
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t n = std::min(most, count - first), ranks = static_cast<std::size_t>(size());
    EGT_TRY(enqueue({static_cast<std::byte*>(data) + first * size_of(type), n,
                     round_up((n + ranks - 1) / ranks, alignment_bytes / size_of(type)), type, chunks_++}));
  }
  return end(stream);
}

/// Each step waits for the stream's earlier work: a step's waits for peers then have their whole time.
Status PeerCommunicator::begin(Stream& stream) {
  EGT_TRY(device_.record(*begun_, stream));
  for (const std::unique_ptr<Stream>& own : streams_) EGT_TRY(device_.wait(*own, *begun_));
  return {};
}

Status PeerCommunicator::end(Stream& stream) {
  for (std::size_t step = 0; step < steps; ++step) {
    EGT_TRY(device_.record(*ended_[step], *streams_[step]));
    EGT_TRY(device_.wait(stream, *ended_[step]));
  }
  return {};
}

Status PeerCommunicator::enqueue(const Chunk& chunk) {
  EGT_TRY(push_parts(chunk));
  EGT_TRY(sum(chunk));
  EGT_TRY(push_sums(chunk));
  return take_sums(chunk);
}

Status PeerCommunicator::push_parts(const Chunk& chunk) {
  EGT_TRY(await(from_peers(parts_taken, taken_before(chunk)), push_parts_step));
  for (int turn = 1; turn < size(); ++turn) {
    const int peer = next_peer(turn);
    EGT_TRY(copy(part_slot(peer, rank(), chunk), chunk.part(peer), chunk.bytes_of(peer), push_parts_step));
  }
  return signal(to_peers(parts_came, chunk.number + 1), push_parts_step);
}

/// In rank order, in place: the parts of lower ranks are summed in the slot of the first, and added here as
/// one term, which is the same sum as if this rank's were added to it.
Status PeerCommunicator::sum(const Chunk& chunk) {
  EGT_TRY(await(from_peers(parts_came, chunk.number + 1), sum_step));
  const auto elements = static_cast<std::int64_t>(chunk.count_of(rank()));
  const auto part_of = [&](int sender) {
    return VectorView{part_slot(rank(), sender, chunk), chunk.type, elements};
  };
  const VectorView own{chunk.part(rank()), chunk.type, elements};
  if (elements > 0) {
    for (int lower = 1; lower < rank(); ++lower)
      EGT_TRY(device_.add(part_of(0), part_of(lower), stream_of(sum_step)));
    if (rank() > 0) EGT_TRY(device_.add(own, part_of(0), stream_of(sum_step)));
    for (int higher = rank() + 1; higher < size(); ++higher)
      EGT_TRY(device_.add(own, part_of(higher), stream_of(sum_step)));
  }
  std::vector<Flag> over = to_peers(parts_taken, chunk.number + 1);
  over.push_back(flag(rank(), summed, 0, chunk.number + 1));
  return signal(over, sum_step);
}

Status PeerCommunicator::push_sums(const Chunk& chunk) {
  std::vector<Flag> ready = from_peers(sums_taken, taken_before(chunk));
  ready.push_back(flag(rank(), summed, 0, chunk.number + 1));
  EGT_TRY(await(ready, push_sums_step));
  const std::size_t offset = chunk.first(rank()) * size_of(chunk.type);
  for (int turn = 1; turn < size(); ++turn)
    EGT_TRY(copy(sums_slot(next_peer(turn), chunk) + offset, chunk.part(rank()), chunk.bytes_of(rank()),
                 push_sums_step));
  return signal(to_peers(sums_came, chunk.number + 1), push_sums_step);
}

/// What the peers wrote over is read already: their sums come after they got this rank's parts of them.
Status PeerCommunicator::take_sums(const Chunk& chunk) {
  EGT_TRY(await(from_peers(sums_came, chunk.number + 1), take_sums_step));
  const std::byte* sums = sums_slot(rank(), chunk);
  const std::size_t before = chunk.first(rank()) * size_of(chunk.type),
                    after = chunk.first(rank() + 1) * size_of(chunk.type),
                    all = chunk.count * size_of(chunk.type);
  EGT_TRY(copy(chunk.data, sums, before, take_sums_step));
  EGT_TRY(copy(chunk.data + after, sums + after, all - after, take_sums_step));
  return signal(to_peers(sums_taken, chunk.number + 1), take_sums_step);
}

Status check_request(const PeerOptions& options, const Communicator* inner, const std::vector<int>& ranks,
                     int own_rank) {
  const auto wrong = [](const std::string& what) {
    return Status(StatusCode::invalid_argument, "peer copies: " + what);
  };
  if (options.slots < 1) return wrong("there is no slot");
  if (!(options.timeout_seconds > 0)) return wrong("there is no time to wait for peers");
  const int size = inner ? inner->size() : 0;
  if (static_cast<std::size_t>(size) != ranks.size())
    return wrong(fmt::format("{} ranks are named for a communicator of {}", ranks.size(), size));
  if (inner && ranks[static_cast<std::size_t>(inner->rank())] != own_rank)
    return wrong(fmt::format("rank {} is {} in the communicator, and not so in the list of ranks", own_rank,
                             inner->rank()));
  if (ranks.size() * flag_kinds > PeerMemory::flags)
    return Status(StatusCode::unsupported, fmt::format("peer copies among {} ranks: {} are the most",
                                                       ranks.size(), PeerMemory::flags / flag_kinds));
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             const PeerOptions& options) {
  const std::size_t chunk_bytes = options.chunk_bytes > 0           ? options.chunk_bytes
                                  : device.info().backend == "host" ? host_chunk_bytes
                                                                    : gpu_chunk_bytes;
  EGT_TRY(agree(control, check_request(options, inner.get(), ranks, control.place().rank)));
  EGT_TRY(
      agree_on_text(control, fmt::format("{} {}", chunk_bytes, options.slots), "the slots of peer copies"));
  const std::size_t members = std::max<std::size_t>(1, ranks.size());
  const std::size_t part_bytes = round_up((chunk_bytes + members - 1) / members, alignment_bytes);
  std::unique_ptr<PeerCommunicator> made;
  Status prepared;
  if (inner) {
    made = std::make_unique<PeerCommunicator>(device, std::move(inner), options, part_bytes);
    prepared = made->prepare();
  }
  EGT_TRY(agree(control, prepared));
  EGT_TRY_ASSIGN(std::unique_ptr<PeerMemory> memory,
                 PeerMemory::open(device, control,
                                  PeerCommunicator::memory_bytes(part_bytes, options.slots, members), ranks));
  if (made) made->join(std::move(memory));
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace egt
