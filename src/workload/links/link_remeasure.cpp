#include "workload/links/link_remeasure.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace egt {
namespace {

/// Bytes per second of the slower direction; 0 if it was not measured.
double slower_rate(const PairResult::Look& look) {
  double rate = 0;
  for (const PairSide* side : {&look.side_a, &look.side_b}) {
    if (!side->one_way_largest.is_measured()) return 0;
    const double one = static_cast<double>(side->largest) / side->one_way_largest.median;
    rate = rate > 0 ? std::min(rate, one) : one;
  }
  return rate;
}

void take_extremes(LinkTiming& of, const LinkTiming& other) {
  of.least = std::min(of.least, other.least);
  of.most = std::max(of.most, other.most);
}

}  // namespace

std::vector<LinkFigure> directions_of(const std::vector<PairResult>& pairs,
                                      const std::vector<LinkEndpoint>& ends) {
  std::map<std::pair<int, int>, LinkFigure> better;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PairResult& pair = pairs[i];
    if (pair.state != PairResult::State::done) continue;
    const LinkEndpoint &a = ends[static_cast<std::size_t>(pair.a)],
                       &b = ends[static_cast<std::size_t>(pair.b)];
    const LinkType type = classify(a, b);
    for (const bool from_a : {true, false}) {
      const PairSide& side = pair.side_of(from_a);
      if (!side.one_way_largest.is_measured()) continue;
      const auto bytes = static_cast<double>(side.largest);
      LinkFigure figure{.from = from_a ? pair.a : pair.b,
                        .to = from_a ? pair.b : pair.a,
                        .type = type,
                        .median = bytes / side.one_way_largest.median,
                        .best = bytes / side.one_way_largest.least,
                        .lowest = bytes / side.one_way_largest.most,
                        .needs_cores = !a.is_gpu && !b.is_gpu,
                        .is_judged = !shares_cores(a, ends) && !shares_cores(b, ends),
                        .source = i};
      LinkFigure& kept = better[{figure.from, figure.to}];
      if (figure.median > kept.median) kept = std::move(figure);
    }
  }
  std::vector<LinkFigure> figures;
  for (auto& [direction, figure] : better) figures.push_back(std::move(figure));
  return figures;
}

std::optional<std::size_t> pair_to_measure_again(const std::vector<PairResult>& pairs,
                                                 const std::vector<LinkEndpoint>& ends, double warn_below) {
  std::optional<std::size_t> chosen;
  for (const LinkFigure& slow : slow_links(directions_of(pairs, ends), warn_below)) {
    const PairResult& pair = pairs[slow.source];
    if (pair.is_settled || pair.looks() >= max_looks) continue;
    if (!chosen || pair.looks() < pairs[*chosen].looks()) chosen = slow.source;
  }
  return chosen;
}

void add_look(PairResult& kept, const PairResult& look) {
  if (look.state != PairResult::State::done) {
    kept.is_settled = true;
    return;
  }
  std::vector<PairResult::Look>& looks = kept.others;
  looks.push_back({kept.side_a, kept.side_b});
  looks.push_back({look.side_a, look.side_b});
  std::stable_sort(looks.begin(), looks.end(),
                   [](const auto& a, const auto& b) { return slower_rate(a) < slower_rate(b); });
  const auto middle = looks.begin() + (std::ssize(looks) - 1) / 2;
  kept.side_a = middle->side_a;
  kept.side_b = middle->side_b;
  looks.erase(middle);
  for (const PairResult::Look& other : looks) {
    take_extremes(kept.side_a.one_way_largest, other.side_a.one_way_largest);
    take_extremes(kept.side_b.one_way_largest, other.side_b.one_way_largest);
  }
}

}  // namespace egt
