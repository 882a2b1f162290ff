#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt {

/// Assigns batches to devices: in iteration i, device d of the trial processes generation (i + d) %
/// generations of the first device.
struct FeedShape {
  int index = 0;  ///< index of this device among `devices`
  int devices = 1;
  std::int64_t per_delivery = 1;   ///< batches moved together
  std::size_t stride = 0;          ///< bytes between batches
  std::vector<std::size_t> bytes;  ///< bytes of a batch that each device uses

  int generation(std::int64_t iteration) const;
  /// Bytes of a delivery to a device.
  std::size_t delivery_bytes(int device) const;
};

/// Moves batches, one delivery at a time, from the first device to the others while these process the
/// previous one. Two slots each. Deliveries count from 0; all devices make the same calls. One thread.
class InputPipeline {
 public:
  static constexpr int slots = 2;
  /// Writes an input of a generation at an address.
  using MakeInput = std::function<Status(int generation, std::byte* input, Stream& stream)>;

  virtual ~InputPipeline() = default;
  /// Enqueues this device's part of a delivery. Call it only after `release` of the delivery two before was
  /// enqueued.
  virtual Status deliver(std::int64_t delivery) = 0;
  /// Lets later work in `compute` wait for the delivery.
  virtual Status ready(std::int64_t delivery, Stream& compute) = 0;
  /// Marks the work enqueued in `compute` so far as the last that needs the delivery.
  virtual Status release(std::int64_t delivery, Stream& compute) = 0;
  /// A batch of the delivery that was made ready.
  virtual const std::byte* input(std::int64_t iteration) const = 0;
  /// Whether the input comes from another device.
  virtual bool is_moved() const = 0;
  /// The stream for its transfers; null: none.
  virtual Stream* stream() = 0;
};

/// Keeps all batches in this device's own memory.
Result<std::unique_ptr<InputPipeline>> make_local_feed(Device& device, const FeedShape& shape,
                                                       const InputPipeline::MakeInput& make);
/// The first device sends to the others over `communicator`, which contains those devices in that order.
Result<std::unique_ptr<InputPipeline>> make_exchange_feed(Device& device, Communicator& communicator,
                                                          const FeedShape& shape,
                                                          const InputPipeline::MakeInput& make);
/// The first device copies into the other devices' slots in `memory`, whose members are these devices in that
/// order. Messages over `communicator` order the copies. Both must outlive the feed.
Result<std::unique_ptr<InputPipeline>> make_peer_feed(Device& device, Communicator& communicator,
                                                      const PeerMemory& memory, const FeedShape& shape,
                                                      const InputPipeline::MakeInput& make);

/// Bytes of a member's peer memory for deliveries of that size.
std::size_t peer_feed_bytes(std::size_t stride, std::int64_t per_delivery);

}  // namespace egt
