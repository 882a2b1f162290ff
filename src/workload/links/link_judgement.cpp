#include "workload/links/link_judgement.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

using Pair = std::pair<int, int>;

std::string rate_text(double bytes_per_second) {
  return fmt::format("{:.3g} GB/s ({})", bytes_per_second * 1e-9, format_bit_rate(bytes_per_second * 8));
}

/// The rate that is compared with the limit.
double judged_rate(const LinkFigure& figure) {
  return figure.needs_cores ? figure.best : figure.median;
}

/// A direction that is too slow, and the limit it misses.
struct Slow {
  const LinkFigure* figure;
  double limit;
  std::string limit_text;

  Pair pair() const { return std::minmax(figure->from, figure->to); }
  double share() const { return judged_rate(*figure) / limit; }
};

struct Limit {
  double bytes_per_second = 0;
  std::string text;

  void raise(double to, std::string why) {
    if (to <= bytes_per_second) return;
    bytes_per_second = to;
    text = std::move(why);
  }
};

void raise_by_line_rate(Limit& limit, const LinkType& type) {
  if (!type.line_rate_bytes_per_second) return;
  limit.raise(min_share_of_line_rate * *type.line_rate_bytes_per_second,
              fmt::format("{:.0f} % of the line rate of {:.3g} GB/s", min_share_of_line_rate * 100,
                          *type.line_rate_bytes_per_second * 1e-9));
}

/// The median over all directions of one type's pairs, and the same without one rank. The second is needed
/// because one slow rank of four slows half of the pairs, and therefore their median.
class PeerMedians {
 public:
  explicit PeerMedians(const std::vector<LinkFigure>& figures) {
    for (const LinkFigure& one : figures) {
      rates_[one.type.text].push_back(&one);
      left_out_.try_emplace({one.type.text, one.from}, 0);
      left_out_.try_emplace({one.type.text, one.to}, 0);
    }
    for (auto& [key, median] : left_out_) median = median_without(key.first, key.second);
    for (const auto& [type, rates] : rates_) of_all_[type] = median_without(type, no_rank);
  }

  void raise(Limit& limit, const LinkFigure& figure) const {
    const std::string& type = figure.type.text;
    const double share =
        figure.type.kind == LinkKind::memory ? min_share_of_peers_in_memory : min_share_of_peers;
    const auto text = [&](double median, const std::string& without) {
      return fmt::format("{:.0f} % of the median of such pairs{}, {:.3g} GB/s", share * 100, without,
                         median * 1e-9);
    };
    const double of_all = of_all_.at(type);
    limit.raise(share * of_all, text(of_all, ""));
    for (const int rank : {figure.from, figure.to}) {
      const double median = left_out_.at({type, rank});
      limit.raise(share * median, text(median, fmt::format(" without rank {}", rank)));
    }
  }

 private:
  static constexpr int no_rank = -1;

  /// Returns 0 if there are none.
  double median_without(const std::string& type, int rank) const {
    std::vector<double> rates;
    for (const LinkFigure* one : rates_.at(type))
      if (one->from != rank && one->to != rank) rates.push_back(one->median);
    return rates.empty() ? 0 : median_of(std::move(rates));
  }

  std::map<std::string, std::vector<const LinkFigure*>> rates_;
  std::map<std::string, double> of_all_;
  std::map<std::pair<std::string, int>, double> left_out_;
};

std::vector<Slow> slow_directions(const std::vector<LinkFigure>& figures, double warn_below) {
  const PeerMedians peers(figures);
  std::vector<Slow> slow;
  for (const LinkFigure& figure : figures) {
    Limit limit;
    limit.raise(warn_below, fmt::format("--warn-below {}", format_bit_rate(warn_below * 8)));
    if (figure.is_judged) {
      raise_by_line_rate(limit, figure.type);
      peers.raise(limit, figure);
    }
    if (judged_rate(figure) < limit.bytes_per_second)
      slow.push_back({&figure, limit.bytes_per_second, limit.text});
  }
  return slow;
}

std::string pair_text(const Pair& pair, const char* arrow = "<->") {
  return fmt::format("rank {} {} rank {}", pair.first, arrow, pair.second);
}

/// One finding for several slow directions; `slow` must not be empty.
Finding finding_of(std::string where, const std::vector<const Slow*>& slow) {
  const Slow& worst = **std::min_element(
      slow.begin(), slow.end(), [](const Slow* a, const Slow* b) { return a->share() < b->share(); });
  Finding finding;
  finding.kind = "link";
  finding.where = std::move(where);
  finding.text = fmt::format("{} ({}): {}, below {}", finding.where, worst.figure->type.text,
                             rate_text(judged_rate(*worst.figure)), worst.limit_text);
  if (worst.figure->best >= worst.limit)
    finding.text += fmt::format(", unstable: {:.3g} to {:.3g} GB/s", worst.figure->lowest * 1e-9,
                                worst.figure->best * 1e-9);
  std::set<Pair> pairs;
  std::set<int> ranks;
  for (const Slow* one : slow) {
    pairs.insert(one->pair());
    ranks.insert({one->figure->from, one->figure->to});
  }
  finding.ranks.assign(ranks.begin(), ranks.end());
  if (pairs.size() > 1) {
    constexpr std::size_t max_named = 8;
    finding.text += fmt::format(", at {}; slow:", pair_text({worst.figure->from, worst.figure->to}, "->"));
    std::size_t named = 0;
    for (const Pair& pair : pairs) {
      if (++named > max_named) break;
      finding.text += fmt::format("{} {}", named > 1 ? "," : "", pair_text(pair));
    }
    if (pairs.size() > max_named) finding.text += fmt::format(" and {} more", pairs.size() - max_named);
  }
  finding.expected = worst.limit * 1e-9;
  finding.actual = judged_rate(*worst.figure) * 1e-9;
  return finding;
}

/// Reports slow pairs with the fewest findings that explain them.
class Teller {
 public:
  Teller(const std::vector<LinkFigure>& figures, const std::vector<LinkEndpoint>& ends,
         std::vector<Slow> slow)
      : ends_(ends), slow_(std::move(slow)) {
    for (const LinkFigure& figure : figures) all_.insert(std::minmax(figure.from, figure.to));
    for (const Slow& one : slow_) open_.insert(one.pair());
  }

  std::vector<Finding> report() {
    report_hosts();
    report_together("every pair", [](const Pair&) { return true; });
    for (const LinkEndpoint& end : ends_)
      if (report_together(fmt::format("all links of rank {}", end.rank), [&](const Pair& pair) {
            return pair.first == end.rank || pair.second == end.rank;
          })) {
        findings_.back().rank = end.rank;
        findings_.back().hostname = end.hostname;
      }
    const std::set<Pair> left = open_;
    for (const Pair& pair : left) report_pair(pair);
    return std::move(findings_);
  }

 private:
  using Which = std::function<bool(const Pair&)>;

  const LinkEndpoint& end(int rank) const { return ends_[static_cast<std::size_t>(rank)]; }

  /// Reports the pairs that match `which` together, if there are two or more and all are slow.
  bool report_together(const std::string& where, const Which& which) {
    std::set<Pair> pairs;
    for (const Pair& pair : all_)
      if (which(pair)) pairs.insert(pair);
    const bool all_slow =
        std::all_of(pairs.begin(), pairs.end(), [&](auto& one) { return open_.contains(one); });
    if (pairs.size() < 2 || !all_slow) return false;
    report_these(where, pairs);
    return true;
  }

  void report_hosts() {
    std::map<std::pair<std::string, std::string>, std::string> between;
    for (const Pair& pair : all_) {
      const auto hosts = std::minmax(end(pair.first).host_id, end(pair.second).host_id);
      if (hosts.first != hosts.second)
        between[hosts] =
            fmt::format("{} <-> {}", host_name(end(pair.first), ends_), host_name(end(pair.second), ends_));
    }
    for (const auto& [hosts, where] : between)
      report_together(where, [&, ids = hosts](const Pair& pair) {
        return std::minmax(end(pair.first).host_id, end(pair.second).host_id) ==
               std::pair<const std::string&, const std::string&>(ids.first, ids.second);
      });
  }

  void report_pair(const Pair& pair) {
    const bool both =
        std::count_if(slow_.begin(), slow_.end(), [&](const Slow& one) { return one.pair() == pair; }) > 1;
    const auto one =
        std::find_if(slow_.begin(), slow_.end(), [&](auto& slow) { return slow.pair() == pair; });
    report_these(both ? pair_text(pair) : pair_text({one->figure->from, one->figure->to}, "->"), {pair});
  }

  void report_these(const std::string& where, const std::set<Pair>& pairs) {
    std::vector<const Slow*> slow;
    for (const Slow& one : slow_)
      if (pairs.contains(one.pair())) slow.push_back(&one);
    findings_.push_back(finding_of(where, slow));
    for (const Pair& pair : pairs) open_.erase(pair);
  }

  const std::vector<LinkEndpoint>& ends_;
  const std::vector<Slow> slow_;
  std::set<Pair> all_, open_;  ///< all measured pairs; slow pairs not yet reported
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<LinkFigure> slow_links(const std::vector<LinkFigure>& figures, double warn_below) {
  std::vector<Slow> slow = slow_directions(figures, warn_below);
  std::stable_sort(slow.begin(), slow.end(),
                   [](const Slow& a, const Slow& b) { return a.share() < b.share(); });
  std::vector<LinkFigure> links;
  for (const Slow& one : slow) links.push_back(*one.figure);
  return links;
}

std::vector<Finding> judge_links(const std::vector<LinkFigure>& figures,
                                 const std::vector<LinkEndpoint>& ends, double warn_below) {
  return Teller(figures, ends, slow_directions(figures, warn_below)).report();
}

std::optional<Finding> judge_host_link(const LinkEndpoint& end, const std::string& what, double median) {
  const LinkType type = classify_to_host(end);
  Limit limit;
  raise_by_line_rate(limit, type);
  if (median >= limit.bytes_per_second) return std::nullopt;
  Finding finding;
  finding.kind = "link";
  finding.rank = end.rank;
  finding.ranks = {end.rank};
  finding.hostname = end.hostname;
  finding.where = what;
  finding.text = fmt::format("{} ({}): {}, below {}", what, type.text, rate_text(median), limit.text);
  finding.expected = limit.bytes_per_second * 1e-9;
  finding.actual = median * 1e-9;
  return finding;
}

std::optional<int> common_rank(const std::vector<Pair>& wrong_pairs) {
  const std::set<Pair> pairs(wrong_pairs.begin(), wrong_pairs.end());
  if (pairs.size() < 2) return std::nullopt;
  for (const int rank : {pairs.begin()->first, pairs.begin()->second})
    if (std::all_of(pairs.begin(), pairs.end(),
                    [&](const Pair& pair) { return pair.first == rank || pair.second == rank; }))
      return rank;
  return std::nullopt;
}

}  // namespace egt
