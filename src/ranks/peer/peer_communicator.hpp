#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"

namespace egt {

/// Communicator for ranks on one node whose all-reduce copies into the peers' memory. `inner` runs all other
/// calls, including splits. Signals in the streams order the copies; no host thread waits.
/// - Reduction: each rank receives its part of the data from all peers, reduces it in rank order by
///   Device::add (bf16 is rounded after each term), and copies the result to all. Two ranks exchange all data
///   instead.
/// - Order: all-reduces run one after the other, even those of several streams. An all-reduce must not wait
///   in its stream for work behind a later one.
/// - Errors: if a peer does not arrive, streams wait until `abort`, or until `check` fails because `inner` or
///   a peer failed. No later result can be trusted. `check` then fails on all ranks: timeout if a peer
///   aborted.
/// Collective over all ranks of `control`, which return the same Status. `ranks`: those of `inner`, in its
/// order, as numbered by `control`. A rank in no group passes a null `inner` and no ranks, and gets null.
/// `chunk_bytes`: max bytes reduced together; 0: the device's default. Each device needs twice that memory.
/// Fails like PeerMemory::open (unsupported or unavailable if a device cannot reach another's memory), or if
/// `inner` failed. `device` must outlive it. No all-reduce may be in flight when it is destroyed.
Result<std::unique_ptr<Communicator>> open_peer_communicator(Device& device, Control& control,
                                                             std::unique_ptr<Communicator> inner,
                                                             const std::vector<int>& ranks,
                                                             std::size_t chunk_bytes = 0);

}  // namespace egt
