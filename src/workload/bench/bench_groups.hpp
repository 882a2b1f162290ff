#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"
#include "egt/workload/workload.hpp"
#include "model/parallel/parallel_plan.hpp"
#include "ranks/peer/peer_memory.hpp"

namespace egt {

/// What data goes through between the ranks of a trial: made once for all trials, and anew after a restart.
class BenchGroups {
 public:
  struct Needs {
    std::vector<int> counts;  ///< of the first ranks that work together
    bool peer_sums = false;   ///< gradients by peer copies
    /// Of each rank's memory for batches by peer copies, ascending: the largest that there is room for is
    /// taken. None: no batches are moved so.
    std::vector<std::size_t> slot_bytes = {};
    std::vector<RankPlace> places = {};
    std::vector<ParallelPlan> plans = {};  ///< of the first ranks, that divide a network
  };

  /// Of this rank in a plan, numbered as its parts are; with itself alone where a dimension is 1.
  struct Split {
    std::unique_ptr<Communicator> data, tensor, pipeline;
  };

  /// Collective: all ranks leave with the same Status. `control`, used in the call only, is of the same ranks
  /// as the environment's communicator.
  static Result<std::unique_ptr<BenchGroups>> open(Environment& environment, Control& control,
                                                   const Needs& needs);

  /// This rank's own.
  Communicator& alone() { return *alone_; }
  /// Of the first `count` ranks, of which this is one.
  Communicator& of_first(int count) { return *collectives_.at(count); }
  /// The same, where gradients go by peer copies; only if why_no_peers is empty.
  Communicator& peers_of_first(int count) { return *peers_.at(count); }
  /// Of a plan that this rank takes part in.
  const Split& of_plan(const ParallelPlan& plan) const { return splits_.at(plan); }
  /// For batches by peer copies, of the first ranks; only if why_no_peers is empty.
  const PeerMemory& peer_memory() const { return *memory_; }
  /// Why the first `count` ranks cannot copy into each other's memory; empty: they can. The same on all
  /// ranks.
  std::string why_no_peers(int count) const;
  /// The same of memory for it, where there is a way: for gradients of the first `count`, ..
  std::string why_no_sums(int count) const;
  /// .. and for batches that need so much.
  std::string why_no_slots(std::size_t bytes) const;

 private:
  Status open_plan(Environment& environment, Control& control, const ParallelPlan& plan);
  Status open_peer_sums(Environment& environment, Control& control, int count);
  Status open_memory(Environment& environment, Control& control, const std::vector<std::size_t>& bytes);

  int on_first_host_ = 1;        ///< so many first ranks share the first one's host
  std::string first_elsewhere_;  ///< who does not: "ranks 0 and 2 are on different hosts"
  std::string why_none_;         ///< of those on one host
  std::map<int, std::string> no_sums_;
  std::string no_slots_;
  std::size_t slot_bytes_ = 0;  ///< that there was room for
  std::unique_ptr<Communicator> alone_;
  std::map<int, std::unique_ptr<Communicator>> collectives_, peers_;
  std::map<ParallelPlan, Split> splits_;
  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace egt
