#include "workload/links/link_remeasure.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace egt {
namespace {

/// Bytes a second of the slower direction; 0: it was not measured.
double slower_rate(const PairResult& pair) {
  if (pair.state != PairResult::State::done) return 0;
  double rate = 0;
  for (const bool from_a : {true, false}) {
    const PairSide& side = pair.side_of(from_a);
    if (!side.one_way_largest.is_measured()) return 0;
    const double one = static_cast<double>(side.largest) / side.one_way_largest.median;
    rate = rate > 0 ? std::min(rate, one) : one;
  }
  return rate;
}

}  // namespace

std::vector<LinkFigure> directions_of(const std::vector<PairResult>& pairs,
                                      const std::vector<LinkEndpoint>& ends) {
  std::map<std::pair<int, int>, LinkFigure> better;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PairResult& pair = pairs[i];
    if (pair.state != PairResult::State::done) continue;
    const LinkType type =
        classify(ends[static_cast<std::size_t>(pair.a)], ends[static_cast<std::size_t>(pair.b)]);
    for (const bool from_a : {true, false}) {
      const PairSide& side = pair.side_of(from_a);
      if (!side.one_way_largest.is_measured()) continue;
      const auto bytes = static_cast<double>(side.largest);
      LinkFigure figure{.from = from_a ? pair.a : pair.b,
                        .to = from_a ? pair.b : pair.a,
                        .type = type,
                        .median = bytes / side.one_way_largest.median,
                        .best = bytes / side.one_way_largest.least,
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
    if (pair.is_settled || pair.looks >= most_looks) continue;
    if (!chosen || pair.looks < pairs[*chosen].looks) chosen = slow.source;
  }
  return chosen;
}

void add_look(PairResult& kept, const PairResult& look) {
  if (look.state != PairResult::State::done) {
    kept.is_settled = true;
    return;
  }
  ++kept.looks;
  if (slower_rate(look) <= slower_rate(kept)) return;
  kept.side_a = look.side_a;
  kept.side_b = look.side_b;
}

}  // namespace egt
