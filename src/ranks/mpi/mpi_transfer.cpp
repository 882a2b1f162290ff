#include "ranks/mpi/mpi_transfer.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt {
namespace {

constexpr double withdraw_seconds = 0.2;
/// A poll is what moves the bytes, piece by piece: so it is repeated while they come (some 0.1 ms), and
/// leaves the core to the compute threads while a peer is late.
constexpr int polls_before_sleep = 400;
constexpr std::chrono::microseconds longest_sleep{300};
/// Of an exchange's message: large enough for the full rate, small enough that a poll does not take long.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t pieces_under_way = 2;  ///< of one message, so that the next waits while one comes

Result<bool> test_all(std::vector<MPI_Request>& requests) {
  int done = 0;
  EGT_TRY(
      mpi_status(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                 "MPI_Testall"));
  return done != 0;
}

Status why_ended(const TransferLimits& limits) {
  if (limits.aborted) return {StatusCode::aborted, "the collective was given up"};
  if (Clock::now() >= limits.deadline)
    return {StatusCode::timeout, fmt::format("a collective did not end within {:g} s", limits.seconds)};
  return {};
}

Status start_send(const std::byte* data, std::size_t bytes, int peer, int tag, MPI_Comm comm,
                  MPI_Request& request) {
  return mpi_status(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &request),
                    "MPI_Isend");
}

Status start_receive(std::byte* data, std::size_t bytes, int peer, int tag, MPI_Comm comm,
                     MPI_Request& request) {
  return mpi_status(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &request),
                    "MPI_Irecv");
}

}  // namespace

Status TransferPoll::pause(const TransferLimits& limits) {
  EGT_TRY(why_ended(limits));
  if (polls_++ < polls_before_sleep) return {};
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep);
  return {};
}

std::vector<MPI_Request> withdraw(std::vector<MPI_Request> requests) {
  // A cancelled receive completes; a send, or a receive whose message has begun, completes with its peer or
  // not at all.
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  const Status withdrawn =
      wait_until([&] { return test_all(requests); },
                 {.seconds = withdraw_seconds, .what = "the withdrawal of a collective"});
  if (withdrawn.ok()) requests.clear();
  std::erase(requests, MPI_REQUEST_NULL);
  return requests;
}

Status MpiTransfer::send(const std::byte* data, std::size_t bytes, int peer, int tag) {
  if (bytes == 0) return {};
  return start_send(data, bytes, ranks_->at(peer), tag, ranks_->comm,
                    requests_.emplace_back(MPI_REQUEST_NULL));
}

Status MpiTransfer::receive(std::byte* data, std::size_t bytes, int peer, int tag) {
  if (bytes == 0) return {};
  return start_receive(data, bytes, ranks_->at(peer), tag, ranks_->comm,
                       requests_.emplace_back(MPI_REQUEST_NULL));
}

Status MpiTransfer::finish(const TransferLimits& limits) {
  if (requests_.empty()) return {};
  for (TransferPoll poll;;) {
    EGT_TRY_ASSIGN(const bool done, test_all(requests_));
    if (done) break;
    EGT_TRY(poll.pause(limits));
  }
  requests_.clear();
  return {};
}

std::vector<MPI_Request> MpiTransfer::withdraw() {
  return egt::withdraw(std::exchange(requests_, {}));
}

void MpiExchange::send(const std::byte* data, std::size_t bytes, int peer, int tag) {
  flows_.push_back({data, nullptr, bytes, ranks_->at(peer), tag});
}

void MpiExchange::receive(std::byte* data, std::size_t bytes, int peer, int tag) {
  flows_.push_back({nullptr, data, bytes, ranks_->at(peer), tag});
}

Status MpiExchange::begin_piece(Flow& flow, MPI_Request& request) {
  const std::size_t first = flow.begun, bytes = std::min(piece_bytes, flow.bytes - first);
  if (bytes == 0) return {};
  flow.begun += bytes;
  // The pieces have one tag: MPI keeps their order.
  if (flow.source) return start_send(flow.source + first, bytes, flow.peer, flow.tag, ranks_->comm, request);
  return start_receive(flow.target + first, bytes, flow.peer, flow.tag, ranks_->comm, request);
}

Status MpiExchange::run(const TransferLimits& limits) {
  requests_.assign(flows_.size() * pieces_under_way, MPI_REQUEST_NULL);
  for (std::size_t i = 0; i < requests_.size(); ++i)
    EGT_TRY(begin_piece(flows_[i / pieces_under_way], requests_[i]));
  std::vector<int> over(requests_.size());
  for (TransferPoll poll;;) {
    int count = 0;
    EGT_TRY(mpi_status(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, over.data(),
                                    MPI_STATUSES_IGNORE),
                       "MPI_Testsome"));
    if (count == MPI_UNDEFINED) return {};  // none is under way
    if (count > 0) poll.progressed();
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(over[static_cast<std::size_t>(i)]);
      EGT_TRY(begin_piece(flows_[request / pieces_under_way], requests_[request]));
    }
    EGT_TRY(poll.pause(limits));
  }
}

std::vector<MPI_Request> MpiExchange::withdraw() {
  return egt::withdraw(std::exchange(requests_, {}));
}

}  // namespace egt
