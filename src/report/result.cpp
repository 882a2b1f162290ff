#include "egt/report/result.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/report/bodies.hpp"
#include "egt/report/version.hpp"

namespace egt {
namespace {

constexpr int schema = 1;

/// What is left of each rank's records.
struct RankRecords {
  const Record* start = nullptr;
  const Record* last = nullptr;  ///< its end, else its last progress

  const Json& start_body() const { return body(start); }
  const Json& last_body() const { return body(last); }

 private:
  static const Json& body(const Record* record) {
    static const Json none = Json::object();
    return record ? record->body : none;
  }
};
using ByRank = std::map<int, RankRecords>;

ByRank sort_by_rank(const std::vector<Record>& records) {
  ByRank ranks;
  for (const Record& record : records) {
    RankRecords& rank = ranks[record.rank];
    if (record.kind == RecordKind::start) rank.start = &record;
    if (record.kind == RecordKind::end) rank.last = &record;
    const bool ended = rank.last && rank.last->kind == RecordKind::end;
    if (record.kind == RecordKind::progress && !ended) rank.last = &record;
  }
  return ranks;
}

/// The start body that speaks for the run: the lowest rank's that has one.
const Json& first_start(const ByRank& ranks) {
  for (const auto& [number, rank] : ranks)
    if (rank.start) return rank.start_body();
  return RankRecords().start_body();
}

/// "2026-01-31T23:59:59.123Z"
std::string utc_text(double unix_seconds) {
  const double whole = std::floor(unix_seconds);
  const int ms = static_cast<int>((unix_seconds - whole) * 1e3);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(whole)), ms);
}

/// Each text once, in the order of ranks; empty ones left out.
Json distinct(const std::vector<std::string>& texts) {
  Json all = Json::array();
  std::set<std::string> seen;
  for (const std::string& text : texts)
    if (!text.empty() && seen.insert(text).second) all.push_back(text);
  return all;
}

Json system_info(const std::vector<Record>& records, const ByRank& ranks) {
  Json info = {{"hostname", nullptr},           {"cpu_model", nullptr},    {"cpu_count", nullptr},
               {"memory_total_bytes", nullptr}, {"kernel", nullptr},       {"driver_version", nullptr},
               {"cuda_version", nullptr},       {"nccl_version", nullptr}, {"cublas_version", nullptr},
               {"mpi_version", nullptr}};
  if (const Json& system = member(first_start(ranks), "system"); system.is_object()) info.update(system);
  std::vector<std::string> hosts, gpus;
  for (const auto& [number, rank] : ranks) {
    const Json& identity = member(rank.start_body(), "identity");
    hosts.push_back(text_at(identity, "hostname"));
    if (text_at(identity, "backend") == "cuda") gpus.push_back(text_at(member(identity, "device"), "name"));
  }
  info["hostnames"] = distinct(hosts);
  info["gpu_names"] = distinct(gpus);
  if (info["hostname"].is_null() && !info["hostnames"].empty()) info["hostname"] = info["hostnames"][0];
  const auto earlier = [](const Record& a, const Record& b) { return a.time < b.time; };
  const auto [first, last] = std::minmax_element(records.begin(), records.end(), earlier);
  info["started_at"] = first == records.end() ? Json() : Json(utc_text(first->time));
  info["ended_at"] = last == records.end() ? Json() : Json(utc_text(last->time));
  return info;
}

Json rank_entry(int number, const RankRecords& rank) {
  Json entry = {{"rank", number},    {"local_rank", nullptr}, {"hostname", nullptr}, {"backend", nullptr},
                {"device", nullptr}, {"numa_node", nullptr},  {"batch", nullptr}};
  if (const Json& identity = member(rank.start_body(), "identity"); identity.is_object())
    entry.update(identity);
  entry["steps"] = member(rank.last_body(), "steps");
  entry["end_reason"] = member(rank.last_body(), "reason");
  entry["error"] = member(rank.last_body(), "error");
  return entry;
}

/// One part of one rank: its figures beside the fields that every test has, which win.
Json result_entry(int number, const std::string& command, const Json& part) {
  Json entry = member(part, "figures").is_object() ? member(part, "figures") : Json::object();
  entry["test_name"] = text_at(part, "name");
  entry["test_type"] = command;
  entry["description"] = text_at(part, "description");
  entry["rank"] = number;
  entry["success"] = value_at<bool>(part, "success").value_or(false);
  entry["failure"] = member(part, "failure");
  return entry;
}

Json results(const ByRank& ranks) {
  Json all = Json::array();
  const std::string command = text_at(first_start(ranks), "command");
  for (const auto& [number, rank] : ranks)
    for (const Json& part : member(rank.last_body(), "parts"))
      all.push_back(result_entry(number, command, part));
  return all;
}

Json verified_work(const ByRank& ranks) {
  VerifiedWork sum;
  for (const auto& [number, rank] : ranks)
    for (const Json& part : member(rank.last_body(), "parts")) add(sum, work_from_json(member(part, "work")));
  return work_to_json(sum);
}

Json test_summary(const ByRank& ranks, const Json& tests) {
  std::optional<double> actual;
  for (const auto& [number, rank] : ranks)
    if (const auto seconds = value_at<double>(rank.last_body(), "elapsed_seconds"))
      actual = std::max(actual.value_or(0), *seconds);
  const auto successful =
      std::count_if(tests.begin(), tests.end(), [](const Json& test) { return test["success"].get<bool>(); });
  return {{"requested_duration_seconds", member(first_start(ranks), "requested_duration_seconds")},
          {"requested_steps", member(first_start(ranks), "requested_steps")},
          {"actual_duration_seconds", actual ? Json(*actual) : Json()},
          {"total_tests", tests.size()},
          {"successful_tests", successful},
          {"failed_tests", static_cast<std::int64_t>(tests.size()) - successful}};
}

/// The fault's own body; its host and device from its rank's start record where the detector did not say.
Json fault_entry(const Record& record, const ByRank& ranks) {
  Json fault = record.body.is_object() ? record.body : Json::object();
  if (!fault.contains("time")) fault["time"] = utc_text(record.time);
  const auto found = ranks.find(value_at<int>(fault, "rank").value_or(-1));
  if (found == ranks.end()) return fault;
  const Json& identity = member(found->second.start_body(), "identity");
  if (text_at(fault, "hostname").empty()) fault["hostname"] = member(identity, "hostname");
  if (text_at(fault, "device_uuid").empty())
    fault["device_uuid"] = member(member(identity, "device"), "uuid");
  return fault;
}

Json faults(const std::vector<Record>& records, const ByRank& ranks) {
  std::vector<const Record*> found;
  for (const Record& record : records)
    if (record.kind == RecordKind::fault) found.push_back(&record);
  std::stable_sort(found.begin(), found.end(), [](auto* a, auto* b) { return a->time < b->time; });
  Json all = Json::array();
  for (const Record* record : found) all.push_back(fault_entry(*record, ranks));
  return all;
}

/// The faults that all ranks counted and held back.
Json fault_repeats(const ByRank& ranks) {
  Json all = Json::array();
  for (const auto& [number, rank] : ranks)
    for (Json repeat : member(rank.last_body(), "fault_repeats")) {
      const auto time = value_at<double>(repeat, "last_time");
      repeat["last_time"] = time ? Json(utc_text(*time)) : Json();
      all.push_back(std::move(repeat));
    }
  return all;
}

/// {"0": .., "1": ..} of one field of the ranks' last records.
Json per_rank(const ByRank& ranks, const char* field) {
  Json all = Json::object();
  for (const auto& [number, rank] : ranks) all[std::to_string(number)] = member(rank.last_body(), field);
  return all;
}

/// JSON has no NaN: it would be written as null, and read as a number here.
void drop_non_finite(Json& json) {
  if (json.is_structured())
    for (Json& element : json) drop_non_finite(element);
  else if (json.is_number_float() && !std::isfinite(json.get<double>()))
    json = nullptr;
}

Json or_empty(const Json& json, Json empty) {
  return json.is_null() ? std::move(empty) : json;
}

}  // namespace

Json build_result(const std::vector<Record>& records, const Verdict& verdict) {
  const ByRank ranks = sort_by_rank(records);
  const Json& start = first_start(ranks);
  Json result = {{"schema", schema},
                 {"program_version", program_version()},
                 {"command", member(start, "command")},
                 {"arguments", or_empty(member(start, "arguments"), Json::array())},
                 {"options", or_empty(member(start, "options"), Json::object())},
                 {"host_defaults", or_empty(member(start, "host_defaults"), Json::array())},
                 {"layers", member(start, "layers")},
                 {"global_batch", member(start, "global_batch")},
                 {"precisions", member(start, "precisions")},
                 {"verdict", verdict.name},
                 {"exit_code", verdict.exit_code},
                 {"reasons", verdict.reasons},
                 {"system_info", system_info(records, ranks)},
                 {"results", results(ranks)},
                 {"verified_work", verified_work(ranks)},
                 {"faults", faults(records, ranks)},
                 {"fault_repeats", fault_repeats(ranks)},
                 {"injected", !verdict.injections.empty()},
                 {"injections", verdict.injections},
                 {"counters", per_rank(ranks, "counters")},
                 {"telemetry", per_rank(ranks, "telemetry")}};
  result["test_summary"] = test_summary(ranks, result["results"]);
  result["ranks"] = Json::array();
  for (const auto& [number, rank] : ranks) result["ranks"].push_back(rank_entry(number, rank));
  drop_non_finite(result);
  return result;
}

std::string result_text(const Json& result) {
  return result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace egt
