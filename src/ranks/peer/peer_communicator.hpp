#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// A communicator for ranks of one host whose all-reduce is made of copies into the peers' memory: every rank
/// copies each peer its part, sums its own part of all in rank order by Device::add (bf16 is rounded after
/// each term), and copies the sums to all; two ranks send each other all they have. Signals put the copies in
/// order; no host waits. Everything else is `inner`'s, also what is split from it. A peer that does not come
/// leaves a stream waiting until `abort`, or until `check` fails, as `inner` or a peer has; after that no sum
/// is to be trusted, as all ranks' `check` tells: those that only hear of it get timeout.
///
/// Collective over all ranks of `control`, which leave with the same Status. `ranks`: those of `inner`, in
/// its order, as `control` counts them; a rank that belongs to none gives a null `inner` and no ranks, and
/// gets null. `device` must outlive it. `chunk_bytes` are summed and copied together, at most; 0: what suits
/// the device. Needs twice that of each device's memory. Fails as PeerMemory::open does: unsupported or
/// unavailable where a device cannot reach another's memory; or as `inner` has failed.
///
/// All-reduces take place one after the other, also those of several streams: none may wait in its stream for
/// work behind a later one. Who destroys it makes sure that none is still under way in a stream.
Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             std::size_t chunk_bytes = 0);

}  // namespace egt
