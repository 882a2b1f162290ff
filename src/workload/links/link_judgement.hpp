#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"
#include "workload/links/link_type.hpp"

/// Decides which links are too slow and which rank caused wrong data; pure functions.
///
/// A direction of a pair is slow if its rate is below the highest of these limits:
/// - the user's limit
/// - 75 % of the line rate, if known
/// - 90 % of the median over all directions of pairs of that type. The same median without one of the two
///   ranks counts instead if it is higher.
/// The rate is the median of the repeats, because a link that reaches its limit only sometimes is broken too.
///
/// On the host backend a transfer needs a core on both sides, and the system may assign cores elsewhere.
/// There the best repeat counts, and the limit for links through host memory is 20 % of the median.
/// Directions between ranks that share cores are compared with the user's limit only.
namespace egt {

constexpr double min_share_of_line_rate = 0.75;
constexpr double min_share_of_peers = 0.9, min_share_of_peers_in_memory = 0.2;

/// Rates of one direction in bytes per second, by the faster method.
struct LinkFigure {
  int from = 0, to = 0;
  LinkType type;
  double median = 0;
  double best = 0;  ///< max over all repeats
  double lowest = 0;
  bool needs_cores = false;  ///< host cores move its bytes
  bool is_judged = true;     ///< compared with line rate and peers, too
  std::size_t source = 0;    ///< caller's index of the measurement
};

/// Returns the slow directions, the one furthest below its limit first.
std::vector<LinkFigure> slow_links(const std::vector<LinkFigure>& figures, double warn_below);

/// One finding of kind "link" per slow link. If all pairs between two nodes, of a rank, or of the run are
/// slow, one finding covers them; it needs two pairs or more. `ends`: of all ranks, by rank. `warn_below`:
/// bytes per second; 0: none.
std::vector<Finding> judge_links(const std::vector<LinkFigure>& figures,
                                 const std::vector<LinkEndpoint>& ends, double warn_below);

/// The same for a device and its host, by the line rate alone. `what`: for example "host to device".
std::optional<Finding> judge_host_link(const LinkEndpoint& end, const std::string& what, double median);

/// Locates the rank that caused wrong data from all pairs with wrong data so far. If several pairs have one
/// rank in common, returns that rank (majority); else std::nullopt.
std::optional<int> common_rank(const std::vector<std::pair<int, int>>& wrong_pairs);

}  // namespace egt
