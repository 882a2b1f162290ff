#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// Position of this rank in the job and on its node.
struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks of this node
  int local_size = 1;
  std::string hostname;
  /// Identifies the node for data paths: ranks with the same id are on one node. See topology.hpp.
  std::string host_id = {};
};

/// The port for control messages between ranks: positions and small texts, never data. Used by the main
/// thread only. Every call has a deadline and fails with `timeout` if a peer does not join.
class Control {
 public:
  virtual ~Control() = default;
  virtual const RankPlace& place() const = 0;

  /// Rank 0 gets every rank's text in rank order, all other ranks an empty list. Collective.
  virtual Result<std::vector<std::string>> gather(const std::string& text) = 0;
  /// Every rank gets rank 0's text. Collective.
  virtual Result<std::string> broadcast(const std::string& text) = 0;
  virtual Status barrier() = 0;

  /// Sends to rank 0 without waiting for it. On rank 0, the next `receive` returns its own text.
  virtual Status send_to_root(std::string text) = 0;
  /// On rank 0: returns the next text sent to it, if there is one. Never waits.
  virtual Result<std::optional<std::string>> receive() = 0;
};

}  // namespace egt
