#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egt/core/record.hpp"
#include "workload/links/link_type.hpp"

/// Which links are slower than they should be, and who is to blame for wrong data: pure functions.
///
/// A direction of a pair is slow below the highest of these limits: what the user asks for; 75 % of the line
/// rate, where the type tells one; 90 % of the median over all directions of pairs of that type, or over
/// those without one of its own two ranks, where that is more. It is judged by the median of its repeats: a
/// link that reaches its limit now and then is broken, too.
///
/// On the host backend a transfer needs a core on both sides, and the system gives cores to others meanwhile.
/// So there the best repeat counts; through memory, the limit is 20 % of the median; and directions between
/// ranks that share cores are judged by what the user asks for only.
namespace egt {

constexpr double least_share_of_line_rate = 0.75;
constexpr double least_share_of_peers = 0.9, least_share_of_peers_in_memory = 0.2;

/// What one direction carried; bytes a second, by the better method.
struct LinkFigure {
  int from = 0, to = 0;
  LinkType type;
  double median = 0;
  double best = 0;  ///< of all repeats
  double lowest = 0;
  bool needs_cores = false;  ///< its bytes are moved by cores of the host
  bool is_judged = true;     ///< by line rate and peers, too
  std::size_t source = 0;    ///< the caller's own: which measurement it is from
};

/// Those that are slow, the one furthest below its limit first.
std::vector<LinkFigure> slow_links(const std::vector<LinkFigure>& figures, double warn_below);

/// One finding a slow link, of kind "link". Where all pairs between two hosts are slow, or all pairs of a
/// rank, or all there are (of two and more), one finding names that. `ends`: of all ranks, by rank.
/// `warn_below`: bytes a second; 0: none.
std::vector<Finding> judge_links(const std::vector<LinkFigure>& figures,
                                 const std::vector<LinkEndpoint>& ends, double warn_below);

/// A device and its host: the same by the line rate alone. `what`: "host to device".
std::optional<Finding> judge_host_link(const LinkEndpoint& end, const std::string& what, double median);

/// Pairs between which data came wrong so far: who is to blame for the last of them. Where there are several
/// and one rank is in all of them, that rank, by majority; else nobody.
std::optional<int> common_rank(const std::vector<std::pair<int, int>>& wrong_pairs);

}  // namespace egt
