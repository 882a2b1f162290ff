#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/core/types.hpp"
#include "ranks/mpi/mpi_group.hpp"
#include "ranks/mpi/mpi_transfer.hpp"

namespace egt {

/// A rank's input to the split of a communicator.
struct SplitChoice {
  std::int64_t group;
  std::uint64_t next_number;  ///< of MpiWorld
};

/// One collective in progress: its tags, limits and transfers. `end` passes unfinished ones to the session.
class MpiCollective {
 public:
  /// `sequence`: the same on all ranks, different for each collective. `ended` aborts the collective.
  MpiCollective(MpiGroup& group, std::size_t sequence, const std::atomic<bool>& ended)
      : group_(group),
        tag_(group.collective_tag(sequence)),
        limits_(group.limits_from_now(ended)),
        transfers_{MpiTransfer(group.ranks), MpiTransfer(group.ranks), MpiTransfer(group.ranks)} {}

  Status all_reduce(std::byte* data, std::size_t count, ElementType type);
  Status broadcast(std::byte* data, std::size_t bytes, int root);
  Status reduce_scatter(const std::byte* send, std::byte* recv, std::size_t recv_count, ElementType type);
  Status all_gather(const std::byte* send, std::byte* recv, std::size_t bytes);
  /// `choices`: one entry per rank, with this rank's entry filled in.
  Status gather_choices(std::vector<SplitChoice>& choices);

  /// Returns the scratch memory, or passes it and pending transfers to the session.
  Status end(Status status);

 private:
  static constexpr std::size_t stages = 3;  ///< chunks of an all-reduce in flight: scatter, reduce and gather

  /// A chunk of the all-reduce: `count` elements at `data`, and the buffer that receives the peers' parts of
  /// this rank's share.
  struct Chunk {
    std::byte* data;
    std::size_t count;
    std::byte* parts;
    MpiTransfer* transfer;
  };
  Status scatter(const Chunk& chunk, std::size_t width);
  Status sum_and_gather(const Chunk& chunk, ElementType type);
  /// Waits for the peers' parts of `count` elements, and reduces them and `own` in rank order.
  Status sum(MpiTransfer& transfer, const std::byte* peers, const std::byte* own, std::byte* out,
             std::size_t count, ElementType type);

  MpiGroup& group_;
  const int tag_;
  const TransferLimits limits_;
  std::array<MpiTransfer, stages> transfers_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace egt
