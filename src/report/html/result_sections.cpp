#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"
#include "report/html/html_text.hpp"
#include "report/html/sections.hpp"
#include "report/tables/summary.hpp"

namespace egt::page {
namespace {

constexpr std::size_t max_text = 80;  // longer texts are not shown as metrics
constexpr std::size_t max_entries = 500;

struct MatrixCell {
  double value = 0;
  bool is_marked = false;
};
using Matrix = std::map<std::pair<int, int>, MatrixCell>;

std::string matrix_html(const std::string& caption, const Matrix& cells) {
  std::set<int> ranks;
  for (const auto& [pair, cell] : cells) ranks.insert({pair.first, pair.second});
  std::vector<std::string> columns = {"from \\ to"};
  for (const int rank : ranks) columns.push_back(fmt::format("{}", rank));
  HtmlTable table(caption, columns);
  for (const int from : ranks) {
    std::vector<std::string> texts = {fmt::format("{}", from)}, attributes = {""};
    for (const int to : ranks) {
      const auto found = cells.find({from, to});
      texts.push_back(found == cells.end() ? "" : fmt::format("{:.3g}", found->second.value));
      attributes.push_back(found != cells.end() && found->second.is_marked ? "class=\"heat\"" : "");
    }
    table.add(texts, attributes);
  }
  return table.html();
}

/// Numbers, short texts and booleans at any depth: {"step_ms p50": 41.2, ..}
void flatten(const Json& json, const std::string& prefix, std::map<std::string, Json>& flat) {
  for (const auto& [name, value] : json.items()) {
    const std::string key = prefix.empty() ? name : prefix + " " + name;
    if (value.is_object())
      flatten(value, key, flat);
    else if (value.is_number() || value.is_boolean() ||
             (value.is_string() && value.get_ref<const std::string&>().size() <= max_text))
      flat[key] = value;
  }
}

/// Entries of one kind. If there are more metrics than entries, each metric is a row.
std::string figures_table(const std::string& name, const std::vector<const Json*>& entries) {
  std::vector<std::map<std::string, Json>> all;
  std::vector<std::string> titles;
  std::set<std::string> keys;
  for (const Json* entry : entries) {
    auto& flat = all.emplace_back();
    flatten(*entry, "", flat);
    const Json& rank = member(*entry, "rank");
    titles.push_back(entries.size() > 1 && text_at(*entry, "test_name") == name && rank.is_number()
                         ? fmt::format("rank {}", rank.dump())
                         : text_at(*entry, "test_name") +
                               (rank.is_number() ? fmt::format(", rank {}", rank.dump()) : ""));
    for (const char* reported : {"test_name", "test_type", "description", "rank", "measurement"})
      flat.erase(reported);
    for (const auto& [key, value] : flat) keys.insert(key);
  }
  const auto cell = [&](std::size_t entry, const std::string& key) {
    const auto found = all[entry].find(key);
    return found == all[entry].end() ? std::string("-") : figure_text(found->second, key);
  };
  const bool turned = keys.size() > entries.size();
  std::vector<std::string> columns = {turned ? "figure" : "of"};
  for (const std::string& key : keys)
    if (!turned) columns.push_back(spoken(key));
  if (turned) columns.insert(columns.end(), titles.begin(), titles.end());
  HtmlTable table(name, columns);
  if (turned)
    for (const std::string& key : keys) {
      std::vector<std::string> cells = {spoken(key)};
      for (std::size_t entry = 0; entry < all.size(); ++entry) cells.push_back(cell(entry, key));
      table.add(cells);
    }
  else
    for (std::size_t entry = 0; entry < all.size(); ++entry) {
      std::vector<std::string> cells = {titles[entry]};
      for (const std::string& key : keys) cells.push_back(cell(entry, key));
      table.add(cells);
    }
  return table.html();
}

}  // namespace

std::string links_section(const Json& result) {
  std::map<std::string, Matrix> bandwidths, latencies;
  for (const Json& entry : member(result, "results")) {
    const auto from = value_at<int>(entry, "from"), to = value_at<int>(entry, "to");
    if (text_at(entry, "measurement") != "pair" || !from || !to) continue;
    const std::string method = text_at(entry, "method");
    const auto way = [&](int a, int b) {
      const Json& figures = member(member(entry, "one_way"), fmt::format("{}->{}", a, b));
      const bool is_slow = value_at<bool>(figures, "below_limit").value_or(false);
      if (const auto rate = value_at<double>(figures, "gb_per_second"))
        bandwidths[method][{a, b}] = {.value = *rate, .is_marked = is_slow};
      if (const auto latency = value_at<double>(entry, "latency_us"))
        latencies[method][{a, b}].value = *latency;
    };
    way(*from, *to);
    way(*to, *from);
  }
  std::string html;
  for (const auto& [method, cells] : bandwidths)
    html += matrix_html(
        fmt::format("GB/s one way, from the row's rank to the column's, by {}; marked: below its limit",
                    method),
        cells);
  for (const auto& [method, cells] : latencies)
    html += matrix_html(fmt::format("Latency in microseconds, by {}", method), cells);
  return html;
}

std::string results_section(const Json& result) {
  std::map<std::string, std::vector<const Json*>> groups;
  std::vector<std::string> order;
  std::size_t left_out = 0;
  for (const Json& entry : member(result, "results")) {
    std::string name = text_at(entry, "measurement");
    if (name.empty() && text_at(result, "command") == "burn") name = text_at(entry, "test_name");
    if (name.empty()) name = text_at(entry, "test_type");
    auto& group = groups[name];
    if (group.empty()) order.push_back(name);
    group.size() < max_entries ? group.push_back(&entry) : void(++left_out);
  }
  std::string html, tables;
  const std::string summary = summary_text(result);
  const bool is_open = summary.empty() && order.size() == 1;  // selftest has no other summary
  if (!summary.empty())
    html += "<pre tabindex=\"0\" role=\"region\" aria-label=\"Results as the terminal shows them\">" +
            html_text(summary) + "</pre>\n";
  for (const std::string& name : order)
    tables += fmt::format("<details{}><summary>{} ({})</summary>{}</details>\n", is_open ? " open" : "",
                          html_text(name), groups[name].size(), figures_table(name, groups[name]));
  if (left_out)
    tables += fmt::format("<p>Not shown here: {} of result.json.</p>", counted(left_out, "result"));
  html += tables;
  return html;
}

}  // namespace egt::page
