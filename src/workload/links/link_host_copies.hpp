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
  std::optional<int> numa_node;                  ///< node of its pages; none: unknown, or several nodes
  LinkTiming to_device, from_device, both_ways;  ///< each transfer moves `bytes` per direction
};

struct HostCopyOutcome {
  std::uint64_t bytes = 0;
  int repeats = 0;
  std::vector<HostCopyFigures> nodes;
  std::vector<WrongData> wrong;  ///< with `from` = -1
};

/// Location text for a fault in such a copy.
std::string place_of_host_copy(int rank, std::uint64_t bytes);

/// Measures the copies on this rank alone, node by node. If memory cannot be bound to nodes, the system
/// chooses one. All data are verified on the device; data copied to the host are first copied back.
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
  Status prepare(Way way, int repeat);
  Status copy(Way way);
  Status verify(Way way, int repeat);
  Pattern pattern(int repeat, bool to_device) const;

  LinkContext& bench_;
  const std::int64_t trial_;
  std::uint64_t measurements_ = 0;  ///< measurements begun; each has its own patterns
  Buffer source_, target_;          ///< pinned: source of copies to the device, target of copies from it
  std::unique_ptr<Event> prepared_, other_end_;
  HostCopyOutcome outcome_;
};

}  // namespace egt
