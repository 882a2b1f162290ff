#include "ranks/mpi/mpi_collective.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ranks/mpi/reduce.hpp"

namespace egt {
namespace {

/// Chunk of a collective that is sent and reduced at once, in bytes. It is large enough for the full rate and
/// small enough for a CPU cache.
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

/// The part [first, first + count) of n elements that `rank` of `size` ranks reduces.
struct Share {
  std::size_t first;
  std::size_t count;
};

Share share_of(std::size_t n, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank), s = static_cast<std::size_t>(size);
  const std::size_t first = n / s * r + std::min(n % s, r);
  return {first, n / s + (r < n % s ? 1 : 0)};
}

}  // namespace

/// Sends every peer its share of the chunk, and receives all peers' terms of this rank's share.
Status MpiCollective::scatter(const Chunk& chunk, std::size_t width) {
  const std::size_t mine = share_of(chunk.count, group_.rank, group_.size).count * width;
  std::byte* part = chunk.parts;
  for (int peer = 0; peer < group_.size; ++peer) {
    if (peer == group_.rank) continue;
    const Share theirs = share_of(chunk.count, peer, group_.size);
    EGT_TRY(chunk.transfer->receive(part, mine, peer, tag_));
    EGT_TRY(chunk.transfer->send(chunk.data + theirs.first * width, theirs.count * width, peer, tag_));
    part += mine;
  }
  return {};
}

Status MpiCollective::sum(MpiTransfer& transfer, const std::byte* peers, const std::byte* own, std::byte* out,
                          std::size_t count, ElementType type) {
  EGT_TRY(transfer.finish(limits_));
  std::vector<const std::byte*> parts;
  for (int rank = 0; rank < group_.size; ++rank) {
    parts.push_back(rank == group_.rank ? own : peers);
    if (rank != group_.rank) peers += count * size_of(type);
  }
  reduce_sum(out, parts, count, type);
  return {};
}

/// Reduces this rank's share in rank order, sends it to all, and receives the other shares in place.
Status MpiCollective::sum_and_gather(const Chunk& chunk, ElementType type) {
  const std::size_t width = size_of(type);
  const Share mine = share_of(chunk.count, group_.rank, group_.size);
  std::byte* own = chunk.data + mine.first * width;
  EGT_TRY(sum(*chunk.transfer, chunk.parts, own, own, mine.count, type));
  for (int peer = 0; peer < group_.size; ++peer) {
    if (peer == group_.rank) continue;
    const Share theirs = share_of(chunk.count, peer, group_.size);
    EGT_TRY(chunk.transfer->receive(chunk.data + theirs.first * width, theirs.count * width, peer, tag_ + 1));
    EGT_TRY(chunk.transfer->send(own, mine.count * width, peer, tag_ + 1));
  }
  return {};
}

Status MpiCollective::all_reduce(std::byte* data, std::size_t count, ElementType type) {
  if (group_.size == 1) return {};  // the identity, even for a NaN
  const std::size_t width = size_of(type), per_chunk = std::min(count, chunk_bytes / width);
  const std::size_t chunks = count == 0 ? 0 : (count + per_chunk - 1) / per_chunk;
  const auto size = static_cast<std::size_t>(group_.size);
  const std::size_t parts_bytes = (per_chunk / size + 1) * width * (size - 1);
  scratch_ = group_.take_scratch(parts_bytes * stages);
  const auto chunk = [&](std::size_t i) -> Chunk {
    return {data + i * per_chunk * width, std::min(per_chunk, count - i * per_chunk),
            scratch_->data() + i % stages * parts_bytes, &transfers_[i % stages]};
  };
  // A chunk is scattered while the one before it is reduced and the one before that is gathered.
  for (std::size_t i = 0; i < chunks + stages - 1; ++i) {
    if (i < chunks) EGT_TRY(scatter(chunk(i), width));
    if (i >= 1 && i - 1 < chunks) EGT_TRY(sum_and_gather(chunk(i - 1), type));
    if (i >= 2) EGT_TRY(transfers_[(i - 2) % stages].finish(limits_));
  }
  return {};
}

/// A binomial tree with positions relative to the root. A rank's parent is its position without the lowest
/// set bit. A chunk is forwarded while the next one arrives.
Status MpiCollective::broadcast(std::byte* data, std::size_t bytes, int root) {
  const int place = (group_.rank - root + group_.size) % group_.size;
  const auto rank_at = [&](int p) { return (p + root) % group_.size; };
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
    for (int bit = 1; place + bit < group_.size && (place & bit) == 0; bit <<= 1)
      EGT_TRY(outgoing.send(data + first, std::min(chunk_bytes, bytes - first), rank_at(place + bit), tag_));
  }
  return outgoing.finish(limits_);
}

Status MpiCollective::reduce_scatter(const std::byte* send, std::byte* recv, std::size_t recv_count,
                                     ElementType type) {
  const std::size_t width = size_of(type), slice = recv_count * width;
  const auto size = static_cast<std::size_t>(group_.size), rank = static_cast<std::size_t>(group_.rank);
  if (size == 1) {  // the identity, even for a NaN
    if (slice > 0 && recv != send) std::memcpy(recv, send, slice);
    return {};
  }
  const std::size_t piece = std::min(slice, chunk_bytes / size / width * width);
  const std::size_t pieces = slice == 0 ? 0 : (slice + piece - 1) / piece;
  scratch_ = group_.take_scratch(piece * (size - 1) * 2);
  const auto parts = [&](std::size_t i) { return scratch_->data() + i % 2 * piece * (size - 1); };
  const auto bytes = [&](std::size_t i) { return std::min(piece, slice - i * piece); };
  const auto exchange = [&](std::size_t i) -> Status {
    std::byte* part = parts(i);
    for (int peer = 0; peer < group_.size; ++peer) {
      if (peer == group_.rank) continue;
      const std::byte* theirs = send + static_cast<std::size_t>(peer) * slice + i * piece;
      EGT_TRY(transfers_[i % 2].receive(part, bytes(i), peer, tag_));
      EGT_TRY(transfers_[i % 2].send(theirs, bytes(i), peer, tag_));
      part += bytes(i);
    }
    return {};
  };
  // A piece is transferred while the one before it is reduced.
  for (std::size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) EGT_TRY(exchange(i));
    if (i == 0) continue;
    const std::size_t first = (i - 1) * piece;
    EGT_TRY(sum(transfers_[(i - 1) % 2], parts(i - 1), send + rank * slice + first, recv + first,
                bytes(i - 1) / width, type));
  }
  return {};
}

Status MpiCollective::all_gather(const std::byte* send, std::byte* recv, std::size_t bytes) {
  std::byte* own = recv + static_cast<std::size_t>(group_.rank) * bytes;
  if (bytes > 0 && own != send) std::memmove(own, send, bytes);
  MpiTransfer& transfer = transfers_[0];
  for (std::size_t first = 0; first < bytes; first += chunk_bytes) {
    const std::size_t n = std::min(chunk_bytes, bytes - first);
    for (int peer = 0; peer < group_.size; ++peer) {
      if (peer == group_.rank) continue;
      EGT_TRY(transfer.receive(recv + static_cast<std::size_t>(peer) * bytes + first, n, peer, tag_));
      EGT_TRY(transfer.send(own + first, n, peer, tag_));
    }
    EGT_TRY(transfer.finish(limits_));
  }
  return {};
}

Status MpiCollective::gather_choices(std::vector<SplitChoice>& choices) {
  const std::size_t bytes = choices.size() * sizeof(SplitChoice), own = static_cast<std::size_t>(group_.rank);
  scratch_ = group_.take_scratch(bytes);  // stays allocated while MPI still uses it
  std::memcpy(scratch_->data() + own * sizeof(SplitChoice), &choices[own], sizeof(SplitChoice));
  EGT_TRY(all_gather(scratch_->data() + own * sizeof(SplitChoice), scratch_->data(), sizeof(SplitChoice)));
  std::memcpy(choices.data(), scratch_->data(), bytes);
  return {};
}

Status MpiCollective::end(Status status) {
  if (status.ok()) {
    if (scratch_) group_.give_scratch(std::move(scratch_));
    return {};
  }
  for (MpiTransfer& transfer : transfers_)
    if (auto left = transfer.withdraw(); !left.empty())
      group_.world->session.adopt({std::move(left), scratch_});
  group_.fail(status);
  return status;
}

}  // namespace egt
