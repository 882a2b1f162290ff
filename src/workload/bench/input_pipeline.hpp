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

/// Which batches go where: device d of the trial works in iteration i on generation (i + d) % generations of
/// the first device's.
struct FeedShape {
  int index = 0;  ///< this device's, among `devices`
  int devices = 1;
  std::int64_t per_delivery = 1;   ///< batches that are moved together
  std::size_t stride = 0;          ///< bytes from batch to batch
  std::vector<std::size_t> bytes;  ///< of a batch, what each device uses of it

  int generation(std::int64_t iteration) const;
  /// Bytes of a delivery to a device.
  std::size_t delivery_bytes(int device) const;
};

/// Brings the batches, a delivery at a time, from the first device to the others while these work on the one
/// before: two slots each. Deliveries are counted from 0; every device makes the same calls. One thread.
class InputPipeline {
 public:
  static constexpr int slots = 2;
  /// Writes an input of a generation at an address.
  using MakeInput = std::function<Status(int generation, std::byte* input, Stream& stream)>;

  virtual ~InputPipeline() = default;
  /// Enqueues what this device has to do for a delivery. Those behind it in `compute` may follow only
  /// after `release` of the one two before was enqueued.
  virtual Status deliver(std::int64_t delivery) = 0;
  /// What follows in `compute` finds the delivery.
  virtual Status ready(std::int64_t delivery, Stream& compute) = 0;
  /// What was put in `compute` until now was the last that needs it.
  virtual Status release(std::int64_t delivery, Stream& compute) = 0;
  /// A batch of the delivery that was made ready.
  virtual const std::byte* input(std::int64_t iteration) const = 0;
  /// Does it come from another device?
  virtual bool is_moved() const = 0;
  /// Where it enqueues work; null: nowhere of its own.
  virtual Stream* stream() = 0;
};

/// All of them in this device's own memory.
Result<std::unique_ptr<InputPipeline>> make_local_feed(Device& device, const FeedShape& shape,
                                                       const InputPipeline::MakeInput& make);
/// Sent by the first device and received by the others, over `communicator`, of those devices in that order.
Result<std::unique_ptr<InputPipeline>> make_exchange_feed(Device& device, Communicator& communicator,
                                                          const FeedShape& shape,
                                                          const InputPipeline::MakeInput& make);
/// Copied by the first device into the slots of the others, in `memory`, whose members these devices are in
/// that order; messages over `communicator` put the copies in order. Both outlive the feed.
Result<std::unique_ptr<InputPipeline>> make_peer_feed(Device& device, Communicator& communicator,
                                                      const PeerMemory& memory, const FeedShape& shape,
                                                      const InputPipeline::MakeInput& make);

/// Bytes of a member's peer memory for deliveries of that size.
std::size_t peer_feed_bytes(std::size_t stride, std::int64_t per_delivery);

}  // namespace egt
