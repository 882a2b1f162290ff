#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Communicator for ranks of one host whose all-reduce copies into the peers' memory. Every rank copies each
/// peer its part, reduces its own part of all in rank order by Device::add (bf16 is rounded after each term),
/// and copies the sums to all. Two ranks send each other all data instead. Signals order the copies; no host
/// thread waits. `inner` runs everything else, including splits. If a peer does not arrive, a stream waits
/// until `abort`, or until `check` fails as on `inner` or a peer. After that no sum can be trusted. `check`
/// reports this on all ranks, as timeout on those that learn it from a peer.
///
/// Collective over all ranks of `control`, which return the same Status. `ranks`: those of `inner`, in its
/// order, as numbered by `control`. A rank in none passes a null `inner` and no ranks, and gets null.
/// `device` must outlive it. `chunk_bytes`: max bytes reduced and copied together; 0: a default for the
/// device. It needs twice that of each device's memory. Fails like PeerMemory::open (unsupported or
/// unavailable if a device cannot reach another's memory), or if `inner` has failed.
///
/// All-reduces run one after the other, even those of several streams. None may wait in its stream for work
/// behind a later one. The owner must ensure that none is in flight when it destroys the object.
Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             std::size_t chunk_bytes = 0);

}  // namespace egt
