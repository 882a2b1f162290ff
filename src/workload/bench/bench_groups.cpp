#include "workload/bench/bench_groups.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "ranks/peer/peer_communicator.hpp"
#include "workload/bench/scaling_plan.hpp"

namespace egt {
namespace {

/// Whether the status means that these devices do not support peer copies. Other errors are failures.
bool is_no_way(const Status& status) {
  return status.code() == StatusCode::unsupported || status.code() == StatusCode::unavailable;
}

/// All ranks return the same Status, so that no rank later waits for one that failed.
Result<std::unique_ptr<Communicator>> split(Environment& environment, Control& control, int group) {
  auto made = environment.communicator.split(group);
  EGT_TRY(agree(control, made.status()));
  return made;
}

}  // namespace

std::string BenchGroups::why_no_peers(int count) const {
  return count > on_first_host_ ? first_elsewhere_ : why_none_;
}

std::string BenchGroups::why_no_sums(int count) const {
  const auto found = no_sums_.find(count);
  return found == no_sums_.end() ? std::string() : found->second;
}

std::string BenchGroups::why_no_slots(std::size_t bytes) const {
  return bytes <= slot_bytes_ ? std::string() : no_slots_;
}

Result<std::unique_ptr<BenchGroups>> BenchGroups::open(Environment& environment, Control& control,
                                                       const Needs& needs) {
  const int own = environment.place.rank;
  std::unique_ptr<BenchGroups> made(new BenchGroups);
  for (const RankPlace& place : needs.places) {
    if (place.rank < made->on_first_host_) continue;
    if (place.host_id != needs.places.front().host_id) {
      made->first_elsewhere_ = fmt::format("ranks 0 and {} are on different hosts", place.rank);
      break;
    }
    made->on_first_host_ = place.rank + 1;
  }
  EGT_TRY_ASSIGN(made->alone_, split(environment, control, own));
  for (const int count : needs.counts) {
    EGT_TRY_ASSIGN(made->collectives_[count], split(environment, control, own < count ? 0 : -1));
  }
  for (const ParallelPlan& plan : needs.plans) EGT_TRY(made->open_plan(environment, control, plan));
  if (!needs.slot_bytes.empty() && made->on_first_host_ > 1)
    EGT_TRY(made->open_memory(environment, control, needs.slot_bytes));
  for (const int count : needs.counts)
    if (needs.peer_sums && made->why_no_peers(count).empty())
      EGT_TRY(made->open_peer_sums(environment, control, count));
  return made;
}

/// Opens memory on the ranks of rank 0's node. Ranks on other nodes only take part in the collective calls.
Status BenchGroups::open_memory(Environment& environment, Control& control,
                                const std::vector<std::size_t>& bytes) {
  const int own = environment.place.rank;
  const std::vector<int> members = own < on_first_host_ ? first_ranks(on_first_host_) : std::vector<int>();
  Status opened;
  for (auto size = bytes.rbegin(); size != bytes.rend(); ++size) {
    auto memory = PeerMemory::open(environment.device, control, *size, members);
    opened = memory.status();
    if (opened.ok()) {
      memory_ = std::move(memory.value());
      slot_bytes_ = *size;
    }
    if (opened.code() != StatusCode::out_of_memory) break;
    no_slots_ = opened.what();  // trials that fit the next smaller size still run
  }
  if (is_no_way(opened)) why_none_ = opened.what();
  return is_no_way(opened) || opened.code() == StatusCode::out_of_memory ? Status() : opened;
}

/// Ranks beyond the plan only take part in the calls. A rank that is alone in a dimension gets a group of its
/// own there. A plan of one part gives every rank its own groups.
Status BenchGroups::open_plan(Environment& environment, Control& control, const ParallelPlan& plan) {
  const int own = environment.place.rank;
  const ParallelPlace place = place_of(plan, own);
  const auto group = [&](ParallelPlace first) {
    if (plan.ranks() == 1) return own;
    return own < plan.ranks() ? rank_of(plan, first) : -1;
  };
  Split& made = splits_[plan];
  EGT_TRY_ASSIGN(made.data, split(environment, control, group({0, place.tensor, place.stage})));
  EGT_TRY_ASSIGN(made.tensor, split(environment, control, group({place.data, 0, place.stage})));
  EGT_TRY_ASSIGN(made.pipeline, split(environment, control, group({place.data, place.tensor, 0})));
  return {};
}

Status BenchGroups::open_peer_sums(Environment& environment, Control& control, int count) {
  const bool member = environment.place.rank < count;
  EGT_TRY_ASSIGN(auto inner, split(environment, control, member ? 0 : -1));
  auto opened = open_peer_communicator(environment.device, control, std::move(inner),
                                       member ? first_ranks(count) : std::vector<int>());
  const Status status = opened.status();
  if (is_no_way(status)) why_none_ = status.what();
  if (status.code() == StatusCode::out_of_memory) no_sums_[count] = status.what();
  if (is_no_way(status) || status.code() == StatusCode::out_of_memory) return {};
  EGT_TRY(status);
  peers_[count] = std::move(opened.value());
  return {};
}

}  // namespace egt
