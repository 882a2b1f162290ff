#include "mpi_transfer.hpp"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt {
namespace {

constexpr double withdraw_seconds = 0.2;
/// A poll is what moves the bytes, piece by piece: so it is repeated while they come (some 0.1 ms), and
/// leaves the core to the compute threads while a peer is late.
constexpr int polls_before_sleep = 400;
constexpr std::chrono::microseconds first_sleep{5};
constexpr std::chrono::microseconds longest_sleep{300};

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

}  // namespace

Status MpiTransfer::send(const std::byte* data, std::size_t bytes, int peer, int tag) {
  if (bytes == 0) return {};
  MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
  return mpi_status(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &request),
                    "MPI_Isend");
}

Status MpiTransfer::receive(std::byte* data, std::size_t bytes, int peer, int tag) {
  if (bytes == 0) return {};
  MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
  return mpi_status(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &request),
                    "MPI_Irecv");
}

Status MpiTransfer::finish(const TransferLimits& limits) {
  if (requests_.empty()) return {};
  auto sleep = first_sleep;
  for (int polls = 0;; ++polls) {
    EGT_TRY_ASSIGN(const bool done, test_all(requests_));
    if (done) break;
    EGT_TRY(why_ended(limits));
    if (polls < polls_before_sleep) continue;
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, longest_sleep);
  }
  requests_.clear();
  return {};
}

std::vector<MPI_Request> MpiTransfer::withdraw() {
  // A cancelled receive completes; a send, or a receive whose message has begun, completes with its peer or
  // not at all.
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  const Status withdrawn =
      wait_until([this] { return test_all(requests_); },
                 {.seconds = withdraw_seconds, .what = "the withdrawal of a collective"});
  if (withdrawn.ok()) requests_.clear();
  std::erase(requests_, MPI_REQUEST_NULL);
  return std::move(requests_);
}

}  // namespace egt
