#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// NUMA placement of host memory. Not thread-safe.
class NumaMemory {
 public:
  static Result<std::unique_ptr<NumaMemory>> open();
  ~NumaMemory();
  NumaMemory(const NumaMemory&) = delete;
  NumaMemory& operator=(const NumaMemory&) = delete;

  /// Nodes from which this process may allocate memory, by OS index, ascending.
  const std::vector<int>& nodes() const { return nodes_; }
  /// Memory first touched by this thread from now on is allocated on `node`. `unavailable`: not permitted.
  Status bind_thread(int node);
  /// Restores allocation on the NUMA node of the current CPU.
  void release_thread();
  /// The node that contains all pages of this memory; std::nullopt if there are several or it is unknown.
  std::optional<int> node_of(const void* data, std::size_t bytes) const;

 private:
  struct Topology;
  explicit NumaMemory(std::unique_ptr<Topology> topology);

  std::unique_ptr<Topology> topology_;
  std::vector<int> nodes_;
};

}  // namespace egt
