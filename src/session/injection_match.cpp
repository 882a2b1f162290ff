#include "egt/session/injection_match.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "egt/core/injection.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr double clock_difference_s = 1.0;

bool kinds_fit(const std::string& injection, const std::string& fault) {
  // What is flipped may make the loss infinite before the digests are looked at.
  constexpr std::string_view of_training[] = {"weight", "optimizer", "gradient", "activation", "gemm"};
  if (fault == "nonfinite") return std::count(std::begin(of_training), std::end(of_training), injection) > 0;
  if (injection == "weight" || injection == "optimizer") return fault == "replica";
  if (injection == "gradient" || injection == "activation") return fault == "replay";
  if (injection == "gemm") return fault == "replay" || fault == "gemm";
  return injection == fault;
}

/// Is "rank 1" in the text, and not only "rank 12"?
bool names_rank(const std::string& text, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t after = at + name.size();
    if (after == text.size() || text[after] < '0' || text[after] > '9') return true;
  }
  return false;
}

bool is_suspect(const Json& fault, int rank) {
  for (const Json& suspect : member(fault, "suspects"))
    if (suspect == rank) return true;
  return names_rank(text_at(fault, "where"), rank);
}

/// A fault, or the newest of those that were held back.
struct Sighting {
  const Json* fault;
  double time;
};

std::vector<Sighting> sightings(const std::vector<Record>& records) {
  std::vector<Sighting> all;
  for (const Record& record : records) {
    if (record.kind == RecordKind::fault) all.push_back({&record.body, record.time});
    for (const Json& repeat : member(record.body, "fault_repeats"))
      all.push_back({&repeat, value_at<double>(repeat, "last_time").value_or(record.time)});
  }
  return all;
}

bool was_found(const Record& injection, const std::vector<Sighting>& sightings) {
  return std::any_of(sightings.begin(), sightings.end(), [&](const Sighting& sighting) {
    return sighting.time + clock_difference_s >= injection.time && fits(injection.body, *sighting.fault);
  });
}

/// Is this what was asked for? What the text left open may have become anything.
bool is_planned(const Json& asked, const Json& struck) {
  for (const auto& [name, value] : asked.items())
    if (!value.is_null() && member(struck, name) != value) return false;
  return true;
}

/// `struck`: null where it did not.
Json outcome(const Json& planned, const Json& asked, const Record* struck,
             const std::vector<Sighting>& sightings) {
  const Json& body = struck ? struck->body : asked;
  Json entry = {{"planned", planned}, {"found", struck && was_found(*struck, sightings)}};
  for (const char* name : {"kind", "rank", "step", "struck_step", "where", "mask", "first_word"})
    entry[name] = member(body, name);
  return entry;
}

/// The texts of the first start record that has some: all ranks were asked for the same.
Json planned_texts(const std::vector<Record>& records) {
  for (const Record& record : records)
    if (const Json& texts = member(member(record.body, "options"), "inject");
        record.kind == RecordKind::start && texts.is_array())
      return texts;
  return Json::array();
}

}  // namespace

bool fits(const Json& injection, const Json& fault) {
  const auto rank = value_at<int>(injection, "rank"), blamed = value_at<int>(fault, "rank");
  if (!rank || !kinds_fit(text_at(injection, "kind"), text_at(fault, "kind"))) return false;
  return blamed ? *blamed == *rank : is_suspect(fault, *rank);
}

Json injection_outcomes(const std::vector<Record>& records) {
  std::vector<const Record*> struck;
  for (const Record& record : records)
    if (record.kind == RecordKind::injection) struck.push_back(&record);
  const std::vector<Sighting> seen = sightings(records);
  Json outcomes = Json::array();
  for (const Json& text : planned_texts(records)) {
    const auto injection = parse_injection(text.is_string() ? text.get<std::string>() : "");
    const Json asked = injection.ok() ? to_json(injection.value()) : Json({{"kind", text}});
    const auto record = std::find_if(struck.begin(), struck.end(),
                                     [&](const Record* one) { return is_planned(asked, one->body); });
    outcomes.push_back(outcome(text, asked, record == struck.end() ? nullptr : *record, seen));
    if (record != struck.end()) struck.erase(record);
  }
  for (const Record* record : struck) outcomes.push_back(outcome(Json(), Json(), record, seen));
  return outcomes;
}

std::vector<std::string> missed_injections(const Json& outcomes) {
  std::vector<std::string> lines;
  for (const Json& one : outcomes) {
    if (value_at<bool>(one, "found").value_or(false)) continue;
    const std::string which =
        fmt::format("{} on rank {}, step {}", text_at(one, "kind"), value_at<int>(one, "rank").value_or(-1),
                    value_at<std::int64_t>(one, "step").value_or(-1));
    if (member(one, "struck_step").is_null())
      lines.push_back(fmt::format("injected fault never struck: {}: the run was too short", which));
    else
      lines.push_back(fmt::format("injected fault not found: {}", which));
  }
  return lines;
}

}  // namespace egt
