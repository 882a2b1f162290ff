#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "workload/common/link_timing.hpp"
#include "workload/links/link_context.hpp"
#include "workload/options.hpp"

namespace egt {

/// Copies between a device and pinned host memory of one NUMA node.
struct HostCopyFigures {
  std::optional<int> numa_node;                  ///< where its pages lie; none: not known, or on several
  LinkTiming to_device, from_device, both_ways;  ///< of `bytes` each way
};

struct HostCopyOutcome {
  std::uint64_t bytes = 0;
  int repeats = 0;
  std::vector<HostCopyFigures> nodes;
  std::vector<WrongData> wrong;  ///< `from` is -1
};

/// Where a wrong one is told to be.
std::string place_of_host_copy(int rank, std::uint64_t bytes);

/// Measures them on this rank alone, node by node; on the one that the system chooses, where memory cannot be
/// bound to nodes. What is copied is verified on the device, to the host and back for the copies to the host.
class LinkHostCopies {
 public:
  LinkHostCopies(LinkContext& bench, std::int64_t trial, const LinksOptions& options);
  Result<HostCopyOutcome> make();

 private:
  Result<HostCopyOutcome> make_on_nodes();
  struct Way {
    bool to_device = false, from_device = false;
  };

  Status take_memory();
  Status measure_node(std::optional<int> node);
  Result<LinkTiming> measure(Way way);
  Status prepare(int repeat);
  Status copy(Way way);
  Status verify(Way way, int repeat);
  Pattern pattern(int repeat, bool to_device) const;

  LinkContext& bench_;
  const std::int64_t trial_;
  std::uint64_t measurements_ = 0;  ///< begun: other patterns for each
  Buffer source_, target_;          ///< pinned: what goes to the device, what comes from it
  std::unique_ptr<Event> prepared_, other_end_;
  HostCopyOutcome outcome_;
};

}  // namespace egt
