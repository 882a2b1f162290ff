#include "workload/table.hpp"

#include "workload/collective/collective_workload.hpp"
#include "workload/copies/host_copies_workload.hpp"
#include "workload/copies/peer_copies_workload.hpp"
#include "workload/file/file_workload.hpp"
#include "workload/memory/memory_workload.hpp"
#include "workload/train/train_workload.hpp"
#include "workload/verify/verify_workload.hpp"
#include "workload/vote/vote_workload.hpp"

namespace egt {

std::vector<std::unique_ptr<Workload>> make_burn_workloads(Environment& environment, BurnParts& parts) {
  std::vector<std::unique_ptr<Workload>> table;
  auto train =
      std::make_unique<TrainWorkload>(environment, parts.train, parts.batch, parts.max_samples, parts.golden);
  TrainWorkload& trained = *train;
  table.push_back(std::move(train));
  const auto communication = [&trained]() -> Stream& { return trained.communication_stream(); };
  auto memory = std::make_unique<MemoryWorkload>(environment, parts.memory,
                                                 [&trained] { return trained.product_rates(); });
  MemoryWorkload& filled = *memory;
  table.push_back(std::make_unique<CollectiveWorkload>(
      environment, parts.collective, communication, [&trained] { return trained.summed_bytes(); },
      [&filled] { return filled.answers(); }));
  const bool is_mix = parts.train.load == LoadKind::mix;
  // Early in the table, because other ranks wait for its copies.
  if (is_mix) table.push_back(std::make_unique<PeerCopiesWorkload>(environment));
  if (parts.readiness)
    table.push_back(std::make_unique<VerifyWorkload>(environment, *parts.readiness, communication));
  table.push_back(std::make_unique<FileWorkload>(environment, parts.file));
  if (is_mix) {
    table.push_back(std::make_unique<HostCopiesWorkload>(environment));
    table.push_back(std::make_unique<VoteWorkload>(environment));
  }
  table.push_back(std::move(memory));  // last: it fills the remaining memory
  return table;
}

}  // namespace egt
