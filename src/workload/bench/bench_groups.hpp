#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"
#include "egt/workload/workload.hpp"
#include "model/parallel/parallel_plan.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt {

/// Data paths between the ranks of a trial, created once for all trials and again after a restart.
class BenchGroups {
 public:
  struct Needs {
    std::vector<int> counts;  ///< group sizes; a group of n has the ranks below n
    bool peer_sums = false;   ///< all-reduce gradients by peer copies
    /// Sizes of each rank's memory for batches by peer copies, ascending. The max size that fits is used. If
    /// empty, no batches are moved by peer copies.
    std::vector<std::size_t> slot_bytes = {};
    std::vector<RankPlace> places = {};
    std::vector<ParallelPlan> plans = {};  ///< plans of the first ranks that divide a network
  };

  /// Communicators of this rank in a plan, ranked by part; in a dimension of 1 with this rank only.
  struct Split {
    std::unique_ptr<Communicator> data, tensor, pipeline;
  };

  /// Collective: all ranks return the same Status. `control` is used during the call only, and has the same
  /// ranks as the environment's communicator.
  static Result<std::unique_ptr<BenchGroups>> open(Environment& environment, Control& control,
                                                   const Needs& needs);

  /// Communicator of this rank only.
  Communicator& alone() { return *alone_; }
  /// Communicator of the first `count` ranks, this one included.
  Communicator& of_first(int count) { return *collectives_.at(count); }
  /// Communicator of the same ranks that all-reduces by peer copies. Only if why_no_peers is empty.
  Communicator& peers_of_first(int count) { return *peers_.at(count); }
  /// Communicators of a plan that includes this rank.
  const Split& of_plan(const ParallelPlan& plan) const { return splits_.at(plan); }
  /// Memory for batches by peer copies, of the first ranks. Only if why_no_peers is empty.
  const PeerMemory& peer_memory() const { return *memory_; }
  /// Why the first `count` ranks cannot copy into each other's memory; empty if they can. The same on all
  /// ranks.
  std::string why_no_peers(int count) const;
  /// Why peer copies lack memory for gradients of the first `count` ranks; empty if they do not.
  std::string why_no_sums(int count) const;
  /// Why peer copies lack memory for batches of that size; empty if they do not.
  std::string why_no_slots(std::size_t bytes) const;

 private:
  Status open_plan(Environment& environment, Control& control, const ParallelPlan& plan);
  Status open_peer_sums(Environment& environment, Control& control, int count);
  Status open_memory(Environment& environment, Control& control, const std::vector<std::size_t>& bytes);

  int on_first_host_ = 1;        ///< number of ranks, from rank 0 on, that are on its node
  std::string first_elsewhere_;  ///< if not all: "ranks 0 and 2 are on different hosts"
  std::string why_none_;         ///< why ranks on one node cannot use peer copies
  std::map<int, std::string> no_sums_;
  std::string no_slots_;
  std::size_t slot_bytes_ = 0;  ///< allocated size
  std::unique_ptr<Communicator> alone_;
  std::map<int, std::unique_ptr<Communicator>> collectives_, peers_;
  std::map<ParallelPlan, Split> splits_;
  std::unique_ptr<PeerMemory> memory_;
};

/// Data paths and current job of a suite. After the communicator was aborted both are kept, because its
/// transfers may still access their memory. Declare it after whatever the jobs use.
template <typename Job>
class TrialResources {
 public:
  std::unique_ptr<BenchGroups> groups;
  std::unique_ptr<Job> job;

  /// See BenchGroups::open. Call it again after a restart.
  Status open(Environment& environment, Control& control, const BenchGroups::Needs& needs) {
    if (groups) old_groups_.push_back(std::move(groups));
    EGT_TRY_ASSIGN(groups, BenchGroups::open(environment, control, needs));
    return {};
  }
  /// After the communicator was aborted: waits, for `seconds` or less, until no work of the job is enqueued.
  Status recover(double seconds) {
    if (!job) return {};
    EGT_TRY(job->give_up(seconds));
    old_jobs_.push_back(std::move(job));
    return {};
  }

 private:
  std::vector<std::unique_ptr<BenchGroups>> old_groups_;
  std::vector<std::unique_ptr<Job>> old_jobs_;
};

}  // namespace egt
