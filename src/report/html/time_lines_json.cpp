#include "report/html/time_lines.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr std::size_t max_ranks = 16;              // ranks with own lines; more ranks are merged
constexpr std::size_t max_drawn_points = 250'000;  // over all lines: a phone draws them in a second
constexpr std::size_t min_drawn_points = 60;       // per line, for any number of lines

Bucket whole(const Line& line) {
  Bucket all;
  for (const Bucket& bucket : line) all.add(bucket);
  return all;
}

/// Whether the line has more than one value.
bool changes(const Line& line) {
  const Bucket all = whole(line);
  return all.least < all.most &&
         std::count_if(line.begin(), line.end(), [](const Bucket& bucket) { return bucket.count > 0; }) > 1;
}

/// The rank with the min or max value; null if all ranks have it.
Json rank_of(const std::map<int, Line>& lines, const Bucket& all, double Bucket::*extreme) {
  if (lines.size() < 2 || all.least == all.most) return {};
  for (const auto& [rank, line] : lines)
    for (const Bucket& bucket : line)
      if (bucket.count && bucket.*extreme == all.*extreme) return rank;
  return {};
}

/// Four digits exceed the resolution of a screen.
Json rounded(double value) {
  return std::isfinite(value) ? Json(std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr)) : Json();
}

Json line_json(const std::string& name, const Line& line, std::size_t most, std::size_t from) {
  Json least = Json::array(), mean = Json::array(), highest = Json::array();
  bool has_band = false;
  const Line points = thinned(line, most);
  for (std::size_t at = from; at < points.size(); ++at) {
    const Bucket& bucket = points[at];
    has_band |= bucket.count > 1;
    least.push_back(bucket.count ? rounded(bucket.least) : Json());
    mean.push_back(bucket.count ? rounded(bucket.mean()) : Json());
    highest.push_back(bucket.count ? rounded(bucket.most) : Json());
  }
  Json json = {{"name", name}, {"mean", std::move(mean)}};
  if (has_band) json.update({{"least", std::move(least)}, {"most", std::move(highest)}});
  return json;
}

/// Ranks with faults, findings or losses.
std::set<int> noted_ranks(const Json& result) {
  std::set<int> ranks;
  for (const char* key : {"faults", "losses", "findings"})
    for (const Json& entry : member(result, key))
      if (ranks.size() + 1 < max_ranks) ranks.insert(value_at<int>(entry, "rank").value_or(-1));
  return ranks;
}

std::string title_of(const LineKind& kind) {
  return *kind.unit ? fmt::format("{}, {}", kind.title, kind.unit) : kind.title;
}

/// The distinct limits of the ranks, normally a single one.
Json limits_of(const LineKind& kind, const Json& result) {
  std::set<double> limits;
  if (kind.limit)
    for (const auto& [rank, telemetry] : member(result, "telemetry").items()) {
      auto limit = value_at<double>(telemetry, kind.limit);
      if (!limit) limit = value_at<double>(member(telemetry, "guard"), kind.limit);
      if (limit && limits.size() < max_ranks) limits.insert(*limit);
    }
  return limits;
}

}  // namespace

Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from) {
  std::size_t longest = 0, drawn_lines = 0;
  for (std::size_t kind = 0; kind < TimeLines::kinds().size(); ++kind) {
    const Line all = merged(lines.lines(kind));
    if (!changes(all)) continue;  // the table shows constant values
    longest = std::max(longest, all.size());
    drawn_lines += std::min(lines.lines(kind).size(), max_ranks);
  }
  const std::size_t most =
      std::max(max_drawn_points / std::max<std::size_t>(drawn_lines, 1), min_drawn_points);
  std::size_t factor = 1;
  static_cast<void>(thinned(Line(longest), most, &factor));
  const std::set<int> noted = noted_ranks(result);
  Json charts = Json::array(), phases = Json::array();
  for (std::size_t kind = 0; kind < TimeLines::kinds().size(); ++kind) {
    const LineKind& what = TimeLines::kinds()[kind];
    const auto& of_ranks = lines.lines(kind);
    const Line together = merged(of_ranks);
    const Bucket all = whole(together);
    if (all.count == 0 || (all.least == 0 && all.most == 0)) continue;
    Json drawn = Json::array();
    const auto draw = [&](const std::string& name, Line line) {
      line.resize(longest);
      drawn.push_back(line_json(name, line, most, from));
    };
    const bool is_drawn = changes(together), too_many = of_ranks.size() > max_ranks;
    if (is_drawn && too_many) draw(fmt::format("all {} ranks", of_ranks.size()), together);
    for (const auto& [rank, line] : of_ranks)
      if (is_drawn && (!too_many || noted.contains(rank)))
        draw(what.is_of_run ? "all ranks" : fmt::format("rank {}", rank), line);
    charts.push_back({{"title", title_of(what)},
                      {"limits", limits_of(what, result)},
                      {"least", rounded(all.least)},
                      {"least_rank", rank_of(of_ranks, all, &Bucket::least)},
                      {"mean", rounded(all.mean())},
                      {"most", rounded(all.most)},
                      {"most_rank", rank_of(of_ranks, all, &Bucket::most)},
                      {"lines", drawn}});
  }
  for (const TimeLines::Phase& phase : lines.phases())
    phases.push_back({{"time", phase.time}, {"name", phase.name}});
  return {{"began", lines.began()},
          {"seconds", lines.bucket_seconds() * static_cast<double>(factor)},
          {"from", from},
          {"charts", charts},
          {"phases", phases}};
}

}  // namespace egt
