#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"

namespace egt {

/// Two sets of ranks that each called the other one silent: both ran on, so it was the network between them
/// that failed.
struct NetworkPartition {
  std::vector<const Record*> losses;  ///< that told it
  std::string text;  ///< "ranks 0, 1 on node1 and rank 2 on node2 did not hear each other for 3.0 s: .."
};

/// `losses`: records of the kind loss, one for each lost rank, each of the rank that told it.
std::optional<NetworkPartition> find_partition(const std::vector<const Record*>& losses);

}  // namespace egt
