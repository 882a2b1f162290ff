#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"

namespace egt::page {
namespace {

constexpr std::size_t spark_points = 120, spark_height = 28;
constexpr std::size_t max_ranks = 16;        // ranks with own lines; more ranks are merged
constexpr std::size_t max_points = 250'000;  // over all lines: a phone draws them in a second
constexpr std::size_t min_points = 60;       // per line, for any number of lines
constexpr std::size_t max_marks = 1000;      // per kind; more are thinned evenly

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

std::string short_text(double value) {
  return fmt::format("{:.4g}", value);
}

/// A line of the means within a band from min to max.
std::string spark(const Line& line, const std::string& label) {
  if (line.size() < 2) return "";
  const Line less = thinned(line, spark_points);
  const Bucket all = whole(less);
  const double range = all.most > all.least ? all.most - all.least : 1;
  const auto y = [&](double value) { return 1 + (spark_height - 2) * (1 - (value - all.least) / range); };
  std::string means, above, below;
  for (std::size_t x = 0; x < less.size(); ++x) {
    if (less[x].count == 0) continue;
    means += fmt::format("{},{:.1f} ", x, y(less[x].mean()));
    above += fmt::format("{},{:.1f} ", x, y(less[x].most));
    below.insert(0, fmt::format("{},{:.1f} ", x, y(less[x].least)));
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\"><polygon "
      "points=\"{}{}\"/><polyline points=\"{}\"/></svg>",
      less.size() - 1, spark_height, html_text(label), above, below, means);
}

/// The rank with the min or max value.
int rank_of(const std::map<int, Line>& lines, bool most, double value) {
  for (const auto& [rank, line] : lines)
    for (const Bucket& bucket : line)
      if (bucket.count && (most ? bucket.most : bucket.least) == value) return rank;
  return 0;
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
    for (const Json& entry : array_at(result, key))
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

Json marks_of(const Json& result) {
  Json marks = Json::array();
  const auto add = [&](const char* kind, const Json& entries, const auto& text) {
    const std::size_t count = std::min(entries.size(), max_marks);
    for (std::size_t mark = 0; mark < count; ++mark) {
      const Json& entry = entries[count == 1 ? 0 : mark * (entries.size() - 1) / (count - 1)];
      if (const std::string time = text_at(entry, "time"); !time.empty())
        marks.push_back({{"kind", kind}, {"time", time}, {"text", text(entry)}});
    }
  };
  add("fault", array_at(result, "faults"), [](const Json& fault) {
    return fmt::format("{} fault, rank {}: {}", text_at(fault, "kind"), figure_text(member(fault, "rank")),
                       text_at(fault, "where"));
  });
  add("fault", array_at(result, "losses"), loss_text);
  add("finding", array_at(result, "findings"), finding_text);
  add("finding", array_at(result, "restarts"), restart_text);
  int number = 0;
  for (const Json& part : array_at(result, "parts_of_run"))
    marks.push_back({{"kind", "part"},
                     {"time", text_at(part, "started_at")},
                     {"text", fmt::format("part {} of the run begins", ++number)}});
  return marks;
}

}  // namespace

std::string time_lines_section(const TimeLines& lines) {
  HtmlTable table("Time series: mean over all ranks, between their minimum and maximum",
                  {"figure", "over time", "least", "mean", "most"});
  for (std::size_t at = 0; at < TimeLines::kinds().size(); ++at) {
    const LineKind& kind = TimeLines::kinds()[at];
    const auto& of_ranks = lines.lines(at);
    const Line line = merged(of_ranks);
    const Bucket all = whole(line);
    if (all.count == 0 || (all.least == 0 && all.most == 0)) continue;
    const auto extreme = [&](double value, bool most) {
      return html_text(of_ranks.size() < 2 || all.least == all.most
                           ? short_text(value)
                           : fmt::format("{} (rank {})", short_text(value), rank_of(of_ranks, most, value)));
    };
    const std::string reported =
        fmt::format("{}: {} to {}", title_of(kind), short_text(all.least), short_text(all.most));
    table.add_html({html_text(title_of(kind)), spark(line, reported), extreme(all.least, false),
                    short_text(all.mean()), extreme(all.most, true)},
                   {"", "", "class=\"short\"", "class=\"short\"", "class=\"short\""});
  }
  return table.html();
}

Json time_lines_json(const TimeLines& lines, const Json& result, std::size_t from) {
  std::vector<std::size_t> shown;  // kinds
  std::size_t longest = 0, drawn_lines = 0;
  for (std::size_t kind = 0; kind < TimeLines::kinds().size(); ++kind) {
    const Line all = merged(lines.lines(kind));
    if (!changes(all)) continue;  // the table shows constant values
    shown.push_back(kind);
    longest = std::max(longest, all.size());
    drawn_lines += std::min(lines.lines(kind).size(), max_ranks);
  }
  const std::size_t most = std::max(max_points / std::max<std::size_t>(drawn_lines, 1), min_points);
  std::size_t factor = 1;
  static_cast<void>(thinned(Line(longest), most, &factor));
  const std::set<int> noted = noted_ranks(result);
  Json charts = Json::array(), phases = Json::array();
  for (const std::size_t kind : shown) {
    const LineKind& what = TimeLines::kinds()[kind];
    const auto& of_ranks = lines.lines(kind);
    Json drawn = Json::array();
    const auto draw = [&](const std::string& name, Line line) {
      line.resize(longest);
      drawn.push_back(line_json(name, line, most, from));
    };
    const bool too_many = of_ranks.size() > max_ranks;
    if (too_many) draw(fmt::format("all {} ranks", of_ranks.size()), merged(of_ranks));
    for (const auto& [rank, line] : of_ranks)
      if (!too_many || noted.contains(rank))
        draw(what.is_of_run ? "all ranks" : fmt::format("rank {}", rank), line);
    charts.push_back({{"title", title_of(what)}, {"limits", limits_of(what, result)}, {"lines", drawn}});
  }
  for (const TimeLines::Phase& phase : lines.phases())
    phases.push_back({{"time", phase.time}, {"name", phase.name}});
  return {{"began", lines.began()},
          {"seconds", lines.bucket_seconds() * static_cast<double>(factor)},
          {"from", from},
          {"charts", charts},
          {"marks", marks_of(result)},
          {"phases", phases}};
}

}  // namespace egt::page
