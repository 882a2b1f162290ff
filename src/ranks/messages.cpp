#include "ranks/messages.hpp"

#include <fmt/format.h>

namespace egt {

namespace {

/// The messages whose peer is `rank`.
Result<std::vector<Message>> of_peer(std::span<const Message> messages, int rank, int size) {
  std::vector<Message> own;
  for (const Message& message : messages) {
    if (message.peer < 0 || message.peer >= size)
      return Status(StatusCode::invalid_argument,
                    fmt::format("a message's peer is {}, which is none of the {} ranks", message.peer, size));
    if (message.peer == rank) own.push_back(message);
  }
  return own;
}

}  // namespace

Result<std::vector<OwnMessage>> own_messages(std::span<const Message> sends,
                                             std::span<const Message> receives, int rank, int size) {
  EGT_TRY_ASSIGN(const auto sent, of_peer(sends, rank, size));
  EGT_TRY_ASSIGN(const auto received, of_peer(receives, rank, size));
  bool match = sent.size() == received.size();
  std::vector<OwnMessage> own;
  for (std::size_t i = 0; match && i < sent.size(); ++i) {
    match = sent[i].bytes == received[i].bytes;
    if (match && sent[i].bytes > 0) own.push_back({sent[i].data, received[i].data, sent[i].bytes});
  }
  if (!match)
    return Status(StatusCode::invalid_argument,
                  "what a rank sends to itself is not what it receives from itself in the same exchange");
  return own;
}

Status all_to_all(Communicator& communicator, const void* send, void* recv, std::size_t bytes_per_rank,
                  Stream& stream) {
  // Sent memory is only read; Message has one pointer type for both directions.
  auto* from = const_cast<std::byte*>(static_cast<const std::byte*>(send));
  auto* to = static_cast<std::byte*>(recv);
  std::vector<Message> sends, receives;
  for (int peer = 0; peer < communicator.size(); ++peer) {
    const std::size_t offset = static_cast<std::size_t>(peer) * bytes_per_rank;
    sends.push_back({from + offset, bytes_per_rank, peer});
    receives.push_back({to + offset, bytes_per_rank, peer});
  }
  return communicator.exchange(sends, receives, stream);
}

}  // namespace egt
