#include "workload/bench/input_pipeline.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "workload/bench/bench_operation.hpp"

namespace egt {
namespace {

std::size_t slot_bytes(const FeedShape& shape) {
  return static_cast<std::size_t>(shape.per_delivery) * shape.stride;
}

/// Buffer of all generations in order, and copies of the first ones, so that each delivery is contiguous.
class Ring {
 public:
  Status prepare(Device& device, const FeedShape& shape, const InputPipeline::MakeInput& make) {
    shape_ = shape;
    const auto entries = static_cast<std::size_t>(shape.per_delivery) + BenchOperation::generations - 1;
    EGT_TRY_ASSIGN(memory_, device.allocate(entries * shape.stride));
    EGT_TRY_ASSIGN(const auto stream,
                   device.create_stream(StreamPriority::normal, StreamUse::without_products));
    for (std::size_t i = 0; i < entries; ++i)
      EGT_TRY(i < BenchOperation::generations
                  ? make(static_cast<int>(i), entry(i), *stream)
                  : device.copy(entry(i), entry(i - BenchOperation::generations), shape.stride, *stream));
    return device.synchronize(*stream, ready_seconds);
  }
  const std::byte* of_generation(int generation) const { return entry(static_cast<std::size_t>(generation)); }
  /// The data for a device.
  std::byte* delivery(std::int64_t number, int to) const {
    const FeedShape of_receiver{.index = to, .devices = shape_.devices, .bytes = {}};
    return entry(static_cast<std::size_t>(of_receiver.generation(number * shape_.per_delivery)));
  }

 private:
  std::byte* entry(std::size_t i) const { return memory_.as<std::byte>() + i * shape_.stride; }

  FeedShape shape_;
  Buffer memory_;
};

/// Uses the first device's batches in place, without transfers.
class LocalFeed : public InputPipeline {
 public:
  LocalFeed(Device& device, const FeedShape& shape) : device_(device), shape_(shape) {}

  Status prepare(const MakeInput& make) { return ring_.prepare(device_, shape_, make); }
  Status deliver(std::int64_t) override { return {}; }
  Status ready(std::int64_t, Stream&) override { return {}; }
  Status release(std::int64_t, Stream&) override { return {}; }
  const std::byte* input(std::int64_t iteration) const override {
    return ring_.of_generation(shape_.generation(iteration));
  }
  bool is_moved() const override { return false; }
  Stream* stream() override { return nullptr; }

 protected:
  Device& device_;
  const FeedShape shape_;
  Ring ring_;
};

/// Common parts of both transfer methods: a transfer stream, and the events a receiver's streams wait for.
class MovingFeed : public LocalFeed {
 public:
  using LocalFeed::LocalFeed;

  const std::byte* input(std::int64_t iteration) const override {
    if (is_source()) return LocalFeed::input(iteration);
    const std::int64_t delivery = iteration / shape_.per_delivery, batch = iteration % shape_.per_delivery;
    return slot(delivery) + static_cast<std::size_t>(batch) * shape_.stride;
  }
  bool is_moved() const override { return !is_source(); }
  Stream* stream() override { return move_.get(); }
  /// Enqueues no transfer work in `compute`, where it would delay the computation.
  Status ready(std::int64_t delivery, Stream& compute) override {
    return is_source() ? Status() : device_.wait(compute, *arrived_[index(delivery)]);
  }
  Status release(std::int64_t delivery, Stream& compute) override {
    return is_source() ? Status() : device_.record(*released_[index(delivery)], compute);
  }

 protected:
  virtual const std::byte* slot(std::int64_t delivery) const = 0;

  Status prepare_ends(const MakeInput& make) {
    EGT_TRY_ASSIGN(move_, device_.create_stream(StreamPriority::high, StreamUse::without_products));
    if (is_source()) return LocalFeed::prepare(make);
    for (auto* events : {&arrived_, &released_})
      for (auto& event : *events) {
        EGT_TRY_ASSIGN(event, device_.create_event(EventUse::order));
      }
    return {};
  }
  bool is_source() const { return shape_.index == 0; }
  static std::size_t index(std::int64_t delivery) { return static_cast<std::size_t>(delivery % slots); }

  std::array<std::unique_ptr<Event>, slots> arrived_, released_;  ///< used by receivers
  std::unique_ptr<Stream> move_;  ///< destroyed before the ring's memory; derived classes reset it
};

class ExchangeFeed final : public MovingFeed {
 public:
  ExchangeFeed(Device& device, Communicator& communicator, const FeedShape& shape)
      : MovingFeed(device, shape), communicator_(communicator) {}
  ~ExchangeFeed() override { move_.reset(); }

  Status prepare(const MakeInput& make) {
    EGT_TRY(prepare_ends(make));
    if (is_source()) return {};
    EGT_TRY_ASSIGN(slots_, device_.allocate(slots * slot_bytes(shape_)));
    return {};
  }

  Status deliver(std::int64_t delivery) override {
    if (is_source()) {
      std::vector<Message> sends;
      for (int to = 1; to < shape_.devices; ++to)
        sends.push_back({ring_.delivery(delivery, to), shape_.delivery_bytes(to), to});
      return communicator_.exchange(sends, {}, *move_);
    }
    EGT_TRY(device_.wait(*move_, *released_[index(delivery)]));
    const std::array receives = {Message{slot_data(delivery), shape_.delivery_bytes(shape_.index), 0}};
    EGT_TRY(communicator_.exchange({}, receives, *move_));
    return device_.record(*arrived_[index(delivery)], *move_);
  }

 private:
  std::byte* slot_data(std::int64_t delivery) const {
    return slots_.as<std::byte>() + index(delivery) * slot_bytes(shape_);
  }
  const std::byte* slot(std::int64_t delivery) const override { return slot_data(delivery); }

  Communicator& communicator_;
  Buffer slots_;
};

/// One message signals the first device that a slot is free. Another signals the receiver that it is filled.
class PeerFeed final : public MovingFeed {
 public:
  PeerFeed(Device& device, Communicator& communicator, const PeerMemory& memory, const FeedShape& shape)
      : MovingFeed(device, shape), communicator_(communicator), memory_(memory) {}
  ~PeerFeed() override { move_.reset(); }

  Status prepare(const MakeInput& make) {
    if (slots * slot_bytes(shape_) > memory_.bytes())
      return {StatusCode::internal, "a delivery is larger than the peers' slots"};
    EGT_TRY_ASSIGN(tokens_, device_.allocate(static_cast<std::size_t>(1 + shape_.devices) * sizeof(float)));
    return prepare_ends(make);
  }

  Status deliver(std::int64_t delivery) override {
    if (!is_source()) return receive(delivery);
    std::vector<Message> free, filled;
    for (int to = 1; to < shape_.devices; ++to) {
      free.push_back(token(1 + to, to));
      filled.push_back(token(0, to));
    }
    EGT_TRY(communicator_.exchange({}, free, *move_));
    for (int to = 1; to < shape_.devices; ++to)
      EGT_TRY(device_.copy(slot_of(to, delivery), ring_.delivery(delivery, to), shape_.delivery_bytes(to),
                           *move_));
    return communicator_.exchange(filled, {}, *move_);
  }

 private:
  /// Waits until the slot's previous delivery is released. The first deliveries find their slots free.
  Status receive(std::int64_t delivery) {
    const std::array free = {token(0, 0)}, filled = {token(1, 0)};
    EGT_TRY(device_.wait(*move_, *released_[index(delivery)]));
    EGT_TRY(communicator_.exchange(free, {}, *move_));
    EGT_TRY(communicator_.exchange({}, filled, *move_));
    return device_.record(*arrived_[index(delivery)], *move_);
  }
  Message token(int place, int peer) const { return {tokens_.as<float>() + place, sizeof(float), peer}; }
  std::byte* slot_of(int member, std::int64_t delivery) const {
    return memory_.data(member) + index(delivery) * slot_bytes(shape_);
  }
  const std::byte* slot(std::int64_t delivery) const override { return slot_of(shape_.index, delivery); }

  Communicator& communicator_;
  const PeerMemory& memory_;
  Buffer tokens_;
};

template <typename Feed, typename... Arguments>
Result<std::unique_ptr<InputPipeline>> prepared(const InputPipeline::MakeInput& make,
                                                Arguments&&... arguments) {
  auto feed = std::make_unique<Feed>(std::forward<Arguments>(arguments)...);
  EGT_TRY(feed->prepare(make));
  return std::unique_ptr<InputPipeline>(std::move(feed));
}

}  // namespace

int FeedShape::generation(std::int64_t iteration) const {
  return static_cast<int>((iteration + index) % BenchOperation::generations);
}

std::size_t FeedShape::delivery_bytes(int device) const {
  return static_cast<std::size_t>(per_delivery - 1) * stride + bytes[static_cast<std::size_t>(device)];
}

std::size_t peer_feed_bytes(std::size_t stride, std::int64_t per_delivery) {
  return InputPipeline::slots * static_cast<std::size_t>(per_delivery) * stride;
}

Result<std::unique_ptr<InputPipeline>> make_local_feed(Device& device, const FeedShape& shape,
                                                       const InputPipeline::MakeInput& make) {
  return prepared<LocalFeed>(make, device, shape);
}

Result<std::unique_ptr<InputPipeline>> make_exchange_feed(Device& device, Communicator& communicator,
                                                          const FeedShape& shape,
                                                          const InputPipeline::MakeInput& make) {
  return prepared<ExchangeFeed>(make, device, communicator, shape);
}

Result<std::unique_ptr<InputPipeline>> make_peer_feed(Device& device, Communicator& communicator,
                                                      const PeerMemory& memory, const FeedShape& shape,
                                                      const InputPipeline::MakeInput& make) {
  return prepared<PeerFeed>(make, device, communicator, memory, shape);
}

}  // namespace egt
