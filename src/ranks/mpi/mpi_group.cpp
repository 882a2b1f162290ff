#include "ranks/mpi/mpi_group.hpp"

#include <chrono>
#include <utility>

#include "egt/core/clock.hpp"

namespace egt {
namespace {

/// Max collectives in flight per communicator, with two tags each, and max messages in flight per pair of
/// ranks, with one tag each.
constexpr int calls = 4096;
constexpr int tags_of_one = 3 * calls;

}  // namespace

int MpiWorld::first_tag(std::uint64_t number) const {
  int* highest = nullptr;
  int known = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, &highest, &known);
  const int places = (known ? *highest : 32767) / tags_of_one;  // MPI guarantees tags up to 32767
  return static_cast<int>(number % static_cast<std::uint64_t>(places)) * tags_of_one;
}

Status MpiGroup::failure() {
  if (aborted) return {StatusCode::aborted, "the communicator was aborted"};
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::vector<std::shared_ptr<MpiGroup>> MpiGroup::children() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<MpiGroup>> alive;
  for (const auto& child : children_)
    if (auto one = child.lock()) alive.push_back(std::move(one));
  return alive;
}

void MpiGroup::add_child(const std::shared_ptr<MpiGroup>& child) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& one) { return one.expired(); });
    children_.push_back(child);
  }
  // Applies to a child that was added too late for the list.
  if (interrupted) child->interrupt();
  if (aborted) child->abort();
}

void MpiGroup::interrupt() {
  interrupted = true;
  for (const auto& child : children()) child->interrupt();
}

void MpiGroup::abort() {
  world->spoiled = true;
  interrupted = true;
  aborted = true;
  for (const auto& child : children()) child->abort();
}

void MpiGroup::fail(const Status& status) {
  world->spoiled = true;
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

std::shared_ptr<Scratch> MpiGroup::take_scratch(std::size_t bytes) {
  std::shared_ptr<Scratch> scratch;
  {
    const std::lock_guard lock(mutex_);
    if (!scratch_.empty()) {
      scratch = std::move(scratch_.back());
      scratch_.pop_back();
    }
  }
  if (!scratch) scratch = std::make_shared<Scratch>();
  if (scratch->size() < bytes) scratch->resize(bytes);
  return scratch;
}

void MpiGroup::give_scratch(std::shared_ptr<Scratch> scratch) {
  const std::lock_guard lock(mutex_);
  scratch_.push_back(std::move(scratch));
}

int MpiGroup::collective_tag(std::size_t sequence) const {
  return first_tag_ + 2 * static_cast<int>(sequence % calls);
}

int MpiGroup::message_tag(std::size_t number) const {
  return first_tag_ + 2 * calls + static_cast<int>(number % calls);
}

TransferLimits MpiGroup::limits_from_now(const std::atomic<bool>& ended) const {
  const std::chrono::duration<double> seconds(timeout_seconds);
  return {Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds), timeout_seconds, ended};
}

}  // namespace egt
