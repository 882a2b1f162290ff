#pragma once

#include <optional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// Where this rank stands.
struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  ///< among the ranks of this host
  int local_size = 1;
  std::string hostname;
  /// Tells hosts apart for data paths: ranks with the same one are on one host. See places.hpp.
  std::string host_id = {};
};

/// The port for control between ranks: who is where, small texts, never data. Used by the main thread only.
/// Every call has a deadline and fails with `timeout` when a peer does not come.
class Control {
 public:
  virtual ~Control() = default;
  virtual const RankPlace& place() const = 0;

  /// Rank 0 gets every rank's text in rank order, the others an empty list. Collective.
  virtual Result<std::vector<std::string>> gather(const std::string& text) = 0;
  /// Every rank gets rank 0's text. Collective.
  virtual Result<std::string> broadcast(const std::string& text) = 0;
  virtual Status barrier() = 0;

  /// To rank 0, without waiting for it. On rank 0 itself the text is received by the next `receive`.
  virtual Status send_to_root(std::string text) = 0;
  /// On rank 0: the next text sent to it, if one is there; never waits.
  virtual Result<std::optional<std::string>> receive() = 0;
};

}  // namespace egt
