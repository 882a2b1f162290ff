#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

struct PeerOptions {
  std::size_t chunk_bytes = 0;  ///< summed and copied together, at most; 0: what suits the device
  int slots = 3;                ///< chunks of which parts may lie at a peer before it took them; at least 1
  double timeout_seconds = 30;  ///< bounds each wait for a peer, from its start in the stream
};

/// A communicator for ranks of one host whose all-reduce is made of copies into the peers' memory: every rank
/// copies each peer its part, sums its own part of all in rank order by Device::add (bf16 is rounded after
/// each term), and copies the sums to all. Flags in the streams put it in order; no host waits. Everything
/// else goes to `inner`, also what is split from it.
///
/// Collective over all ranks of `control`, which leave with the same Status. `ranks`: those of `inner`, in
/// its order, as `control` counts them; a rank that belongs to none gives a null `inner` and no ranks, and
/// gets null. `device` must outlive it; so must the streams that it is given. Needs 2 * slots * chunk_bytes
/// of each device's memory. Fails as PeerMemory::open does: unsupported or unavailable where a device cannot
/// reach another's memory.
///
/// A peer that does not come in time, or `abort`, fails the streams (see Device::await) and `check`. All-
/// reduces take place one after the other, also those of several streams: none may wait in its stream for
/// work behind a later one.
Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             const PeerOptions& options = {});

}  // namespace egt
