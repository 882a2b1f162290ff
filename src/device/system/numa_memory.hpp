#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// From which NUMA node host memory comes, and where it lies. One thread.
class NumaMemory {
 public:
  static Result<std::unique_ptr<NumaMemory>> open();
  ~NumaMemory();
  NumaMemory(const NumaMemory&) = delete;
  NumaMemory& operator=(const NumaMemory&) = delete;

  /// Those that this process may take memory from, by their numbers in the system, ascending.
  const std::vector<int>& nodes() const { return nodes_; }
  /// From now on memory that this thread touches first comes from `node`; `unavailable` where the system
  /// permits that not.
  Status bind_thread(int node);
  /// Back to where this thread runs.
  void release_thread();
  /// The one node on which all pages of this memory lie; nothing: on several, or the system does not say.
  std::optional<int> node_of(const void* data, std::size_t bytes) const;

 private:
  struct Topology;
  explicit NumaMemory(std::unique_ptr<Topology> topology);

  std::unique_ptr<Topology> topology_;
  std::vector<int> nodes_;
};

}  // namespace egt
