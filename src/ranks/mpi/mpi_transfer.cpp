#include "ranks/mpi/mpi_transfer.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt {
namespace {

constexpr double withdraw_seconds = 0.2;
/// Polling moves the bytes, piece by piece. It repeats at once while bytes arrive. While a peer is late, the
/// thread sleeps between polls, so that the compute threads get the core.
constexpr double polling_seconds = 100e-6;
constexpr std::chrono::microseconds longest_sleep{300};
/// Piece of a message: large enough for the full rate, small enough that a poll is short.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t pieces_under_way = 2;  ///< of one message: the next is posted while one arrives

Status why_ended(const TransferLimits& limits) {
  if (limits.aborted) return {StatusCode::aborted, "the collective was aborted"};
  if (Clock::now() >= limits.deadline)
    return {StatusCode::timeout, fmt::format("a collective did not end within {:g} s", limits.seconds)};
  return {};
}

}  // namespace

Status TransferPoll::pause(const TransferLimits& limits) {
  EGT_TRY(why_ended(limits));
  if (seconds_since(progress_) < polling_seconds) return {};
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep);
  return {};
}

Status MpiTransfer::begin(const Flow& flow) {
  if (flow.bytes == 0) return {};
  flows_.push_back(flow);
  for (std::size_t i = 0; i < pieces_under_way; ++i)
    EGT_TRY(begin_piece(flows_.back(), requests_.emplace_back(MPI_REQUEST_NULL)));
  return {};
}

Status MpiTransfer::begin_piece(Flow& flow, MPI_Request& request) {
  const std::size_t first = flow.begun, bytes = std::min(piece_bytes, flow.bytes - first);
  if (bytes == 0) return {};
  flow.begun += bytes;
  // The pieces share one tag, since MPI keeps their order.
  const int count = static_cast<int>(bytes);
  if (flow.source)
    return mpi_status(
        MPI_Isend(flow.source + first, count, MPI_BYTE, flow.peer, flow.tag, ranks_->comm, &request),
        "MPI_Isend");
  return mpi_status(
      MPI_Irecv(flow.target + first, count, MPI_BYTE, flow.peer, flow.tag, ranks_->comm, &request),
      "MPI_Irecv");
}

Status MpiTransfer::finish(const TransferLimits& limits) {
  std::vector<int> over(requests_.size());
  for (TransferPoll poll; !requests_.empty();) {
    int count = 0;
    EGT_TRY(mpi_status(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, over.data(),
                                    MPI_STATUSES_IGNORE),
                       "MPI_Testsome"));
    if (count == MPI_UNDEFINED) break;  // none is in flight
    if (count > 0) poll.progressed();
    for (int i = 0; i < count; ++i) {
      const auto request = static_cast<std::size_t>(over[static_cast<std::size_t>(i)]);
      EGT_TRY(begin_piece(flows_[request / pieces_under_way], requests_[request]));
    }
    EGT_TRY(poll.pause(limits));
  }
  flows_.clear();
  requests_.clear();
  return {};
}

std::vector<MPI_Request> MpiTransfer::withdraw() {
  // A cancelled receive completes. A send, or a receive whose message has started, completes with its peer or
  // not at all.
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  const Status withdrawn =
      wait_until([&] { return mpi_done(requests_); },
                 {.seconds = withdraw_seconds, .what = "the withdrawal of a collective"});
  if (withdrawn.ok()) requests_.clear();
  std::erase(requests_, MPI_REQUEST_NULL);
  flows_.clear();
  return std::exchange(requests_, {});
}

}  // namespace egt
