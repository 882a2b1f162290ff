#include "ranks/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "device/host/host_stream.hpp"
#include "ranks/messages.hpp"
#include "ranks/mpi/mpi_collective.hpp"
#include "ranks/mpi/mpi_group.hpp"
#include "ranks/mpi/mpi_session_impl.hpp"
#include "ranks/mpi/mpi_transfer.hpp"

namespace egt {
namespace {

std::byte* bytes_of(void* data) {
  return static_cast<std::byte*>(data);
}

Status can_sum(ElementType type) {
  if (type == ElementType::f32 || type == ElementType::bf16) return {};
  return {StatusCode::invalid_argument, "collectives sum f32 or bf16 only"};
}

struct Tagged {
  Message message;
  int tag;
};

Status run_exchange(MpiGroup& group, const std::vector<Tagged>& sends, const std::vector<Tagged>& receives) {
  MpiTransfer transfer(group.ranks);
  const auto run = [&]() -> Status {
    for (const auto& [message, tag] : receives)
      EGT_TRY(transfer.receive(bytes_of(message.data), message.bytes, message.peer, tag));
    for (const auto& [message, tag] : sends)
      EGT_TRY(transfer.send(bytes_of(message.data), message.bytes, message.peer, tag));
    return transfer.finish(group.limits_from_now(group.aborted));
  };
  const Status status = run();
  if (status.ok()) return {};
  if (auto left = transfer.withdraw(); !left.empty()) group.world->session.adopt({std::move(left), {}});
  group.fail(status);
  return status;
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::shared_ptr<MpiGroup> group)
      : group_(std::move(group)),
        sent_(static_cast<std::size_t>(group_->size)),
        received_(static_cast<std::size_t>(group_->size)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size; }

  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override {
    EGT_TRY(can_sum(type));
    return enqueue(stream, [=](MpiCollective& c) { return c.all_reduce(bytes_of(data), count, type); });
  }
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override {
    if (root < 0 || root >= size()) return {StatusCode::invalid_argument, "the broadcast's root is no rank"};
    return enqueue(stream, [=](MpiCollective& c) { return c.broadcast(bytes_of(data), bytes, root); });
  }
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override {
    EGT_TRY(can_sum(type));
    return enqueue(stream, [=](MpiCollective& c) {
      return c.reduce_scatter(static_cast<const std::byte*>(send), bytes_of(recv), recv_count, type);
    });
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    return enqueue(stream, [=](MpiCollective& c) {
      return c.all_gather(static_cast<const std::byte*>(send), bytes_of(recv), bytes);
    });
  }

  Status exchange(std::span<const Message> sends, std::span<const Message> receives, Stream& stream) override;
  Result<std::unique_ptr<Communicator>> split(int group) override;

  Status check() override {
    if (group_->interrupted) return {StatusCode::aborted, "the communicator is aborted"};
    return group_->failure();
  }
  void interrupt() override { group_->interrupt(); }
  void abort() override { group_->abort(); }

 private:
  /// Enqueues `work` in the stream as the next collective.
  template <typename Work>
  Status enqueue(Stream& stream, Work work) {
    EGT_TRY(check());
    as_host_stream(stream).enqueue([group = group_, sequence = sequence_++, work]() -> Status {
      EGT_TRY(group->failure());
      MpiCollective collective(*group, sequence, group->aborted);
      return collective.end(work(collective));
    });
    return {};
  }
  /// The messages to or from other ranks, with their tags. `counts`: messages per peer so far.
  std::vector<Tagged> tag(std::span<const Message> messages, std::vector<std::size_t>& counts) const;

  std::shared_ptr<MpiGroup> group_;
  std::size_t sequence_ = 0;           ///< number of collectives so far, the same on all ranks
  std::vector<std::size_t> sent_;      ///< messages to each rank so far
  std::vector<std::size_t> received_;  ///< messages from each rank so far
};

std::vector<Tagged> MpiCommunicator::tag(std::span<const Message> messages,
                                         std::vector<std::size_t>& counts) const {
  std::vector<Tagged> tagged;
  for (const Message& message : messages) {
    if (message.peer == rank()) continue;
    const std::size_t number = counts[static_cast<std::size_t>(message.peer)]++;
    tagged.push_back({message, group_->message_tag(number)});
  }
  return tagged;
}

Status MpiCommunicator::exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 Stream& stream) {
  EGT_TRY_ASSIGN(auto own, own_messages(sends, receives, rank(), size()));
  EGT_TRY(check());
  as_host_stream(stream).enqueue([group = group_, own = std::move(own), sends = tag(sends, sent_),
                                  receives = tag(receives, received_)]() -> Status {
    EGT_TRY(group->failure());
    for (const OwnMessage& message : own)
      if (message.from != message.to) std::memcpy(message.to, message.from, message.bytes);
    return run_exchange(*group, sends, receives);
  });
  return {};
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::split(int group) {
  EGT_TRY(check());
  MpiWorld& world = *group_->world;
  std::vector<SplitChoice> choices(static_cast<std::size_t>(size()));
  choices[static_cast<std::size_t>(rank())] = {group, world.next_number};
  MpiCollective collective(*group_, sequence_++, group_->interrupted);
  EGT_TRY(collective.end(collective.gather_choices(choices)));
  // The number is the same on all ranks and new to each, so communicators with common ranks never share it.
  std::uint64_t number = 0;
  std::vector<int> members;
  int own = 0;
  for (int r = 0; r < size(); ++r) {
    const SplitChoice& choice = choices[static_cast<std::size_t>(r)];
    number = std::max(number, choice.next_number);
    if (r == rank()) own = static_cast<int>(members.size());
    if (choice.group == group) members.push_back(group_->ranks.at(r));
  }
  world.next_number = number + 1;
  if (group < 0) return std::unique_ptr<Communicator>();
  const auto child =
      std::make_shared<MpiGroup>(group_->world, std::move(members), own, number, group_->timeout_seconds);
  group_->add_child(child);
  return std::unique_ptr<Communicator>(new MpiCommunicator(child));
}

}  // namespace

Result<std::unique_ptr<Communicator>> open_mpi_communicator(MpiSession& session, double timeout_seconds) {
  EGT_TRY_ASSIGN(const MPI_Comm comm, session.impl().duplicate(timeout_seconds));
  const RankPlace& place = session.place();
  std::vector<int> all(static_cast<std::size_t>(place.size));
  std::iota(all.begin(), all.end(), 0);
  return std::unique_ptr<Communicator>(new MpiCommunicator(std::make_shared<MpiGroup>(
      std::make_shared<MpiWorld>(session.impl(), comm), std::move(all), place.rank, 0, timeout_seconds)));
}

}  // namespace egt
