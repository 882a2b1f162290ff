#include "judge/result.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "judge/evidence.hpp"
#include "judge/node_verdicts.hpp"
#include "judge/peer_review.hpp"
#include "judge/record_schema.hpp"
#include "judge/version.hpp"

namespace egt {
namespace {

/// "2026-01-31T23:59:59.123Z"
/// A time beyond the year 9999, as in a damaged record, becomes 1970.
std::string utc_text(double unix_seconds) {
  constexpr double year_10000 = 253402300800;
  const double whole = unix_seconds >= 0 && unix_seconds < year_10000 ? std::floor(unix_seconds) : 0;
  const int ms = static_cast<int>((unix_seconds - whole) * 1e3);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(whole)), ms);
}

/// Distinct non-empty texts, in rank order.
Json distinct(const std::vector<std::string>& texts) {
  Json all = Json::array();
  std::set<std::string> seen;
  for (const std::string& text : texts)
    if (!text.empty() && seen.insert(text).second) all.push_back(text);
  return all;
}

/// Start time of a part and time of its last record, in Unix seconds. The span of a run covers all its parts.
struct Span {
  std::optional<double> began, ended;

  Json began_json() const { return began ? Json(utc_text(*began)) : Json(); }
  Json ended_json() const { return ended ? Json(utc_text(*ended)) : Json(); }
};

void extend(std::optional<double>& ended, double time) {
  ended = std::max(ended.value_or(time), time);
}

Span span_of(const ByRank& part) {
  Span span;
  for (const auto& [number, rank] : part) {
    if (rank.start) span.began = std::min(span.began.value_or(rank.start->time), rank.start->time);
    for (const Record* record : {rank.start, rank.last()})
      if (record) extend(span.ended, record->time);
  }
  return span;
}

Span span_of(const std::vector<Record>& records, const std::vector<ByRank>& parts) {
  Span whole;
  for (const ByRank& part : parts) {
    const Span one = span_of(part);
    if (!whole.began) whole.began = one.began;
    if (one.ended) extend(whole.ended, *one.ended);
  }
  for (const Record& record : records)
    if (is_lasting(record)) extend(whole.ended, record.time);
  return whole;
}

bool is_loadtest(const ByRank& ranks) {
  return text_at(first_start(ranks), "command") == "loadtest";
}

Json system_info(const Span& span, const ByRank& ranks) {
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
  if (is_loadtest(ranks)) info["pytorch_version"] = nullptr;  // field of the seed; PyTorch is not used
  info["started_at"] = span.began_json();
  info["ended_at"] = span.ended_json();
  return info;
}

std::int64_t steps_of(const RankRecords& rank) {
  return value_at<std::int64_t>(rank.last_body(), "steps").value_or(0);
}

/// Steps of a rank, summed over all parts of the run; null if the rank reported none.
Json steps_of(const std::vector<ByRank>& parts, int number) {
  Json sum;
  for (const ByRank& part : parts)
    if (const auto rank = part.find(number); rank != part.end() && rank->second.last())
      sum = sum.is_null() ? steps_of(rank->second) : sum.get<std::int64_t>() + steps_of(rank->second);
  return sum;
}

Json rank_entry(int number, const RankRecords& rank, const std::vector<ByRank>& parts) {
  Json entry = {{"rank", number},    {"local_rank", nullptr}, {"hostname", nullptr}, {"backend", nullptr},
                {"device", nullptr}, {"numa_node", nullptr},  {"batch", nullptr}};
  if (const Json& identity = member(rank.start_body(), "identity"); identity.is_object())
    entry.update(identity);
  entry["steps"] = steps_of(parts, number);
  entry["end_reason"] = member(rank.last_body(), "reason");
  entry["error"] = member(rank.last_body(), "error");
  return entry;
}

/// One rank's entry for one part of the load: its metrics and the common test fields, which override them.
Json result_entry(int number, const std::string& command, const Json& part) {
  Json entry = member(part, "figures").is_object() ? member(part, "figures") : Json::object();
  entry["test_name"] = text_at(part, "name");
  if (!entry.contains("test_type")) entry["test_type"] = command;
  entry["description"] = text_at(part, "description");
  entry["rank"] = value_at<bool>(part, "of_all_ranks").value_or(false) ? Json() : Json(number);
  entry["success"] = value_at<bool>(part, "success").value_or(false);
  entry["failure"] = member(part, "failure");
  entry.erase("not_run");  // listed in `checks_not_run`
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

/// The checks that a rank did not run, each with its reason.
std::vector<std::pair<std::string, std::string>> not_run_by(const RankRecords& rank) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Json& part : member(rank.last_body(), "parts"))
    for (const Json& one : member(member(part, "figures"), "not_run"))
      all.emplace_back(text_at(one, "check"), text_at(one, "reason"));
  for (const Json& one : member(rank.last_body(), "not_run"))
    all.emplace_back(text_at(one, "check"), text_at(one, "reason"));
  const Json& counters = member(rank.last_body(), "counters");
  const auto is_missing = [&](const char* name) {
    return counters.is_object() && member(member(counters, name), "after").is_null();
  };
  const auto vanished = [&](const char* name) {
    return is_missing(name) && !member(member(counters, name), "before").is_null();
  };
  if (const std::string why = text_at(rank.start_body(), "no_telemetry"); !why.empty())
    all.emplace_back("telemetry and error counters", why);
  else if (vanished("ecc_corrected") || vanished("ecc_uncorrected"))
    all.emplace_back("ECC counters", "the device stopped reporting them during the run");
  else if (is_missing("ecc_corrected") && is_missing("ecc_uncorrected"))
    all.emplace_back("ECC counters", "the device does not report them");
  return all;
}

/// Checks that were not run, each with reason and rank. `rank` is null if the entry applies to all ranks.
Json checks_not_run(const ByRank& ranks) {
  std::vector<std::pair<std::string, std::string>> in_order;
  std::map<std::pair<std::string, std::string>, std::set<int>> by_check;
  for (const auto& [number, rank] : ranks)
    for (auto& one : not_run_by(rank)) {
      if (by_check[one].empty()) in_order.push_back(one);
      by_check[one].insert(number);
    }
  Json all = Json::array();
  const auto add = [&all](const auto& one, const Json& rank) {
    all.push_back({{"check", one.first}, {"rank", rank}, {"reason", one.second}});
  };
  for (const auto& one : in_order)
    if (by_check[one].size() == ranks.size())
      add(one, nullptr);
    else
      for (const int number : by_check[one]) add(one, number);
  return all;
}

/// What each node had before the run, with its deviations.
Json inventories(const ByRank& ranks) {
  Json all = Json::array();
  for (const auto& [number, rank] : ranks)
    if (const Json& one = member(rank.start_body(), "inventory"); one.is_object()) all.push_back(one);
  return all;
}

VerifiedWork verified_work(const ByRank& ranks) {
  VerifiedWork sum;
  for (const auto& [number, rank] : ranks) add(sum, work_in(rank.last_body()));
  return sum;
}

VerifiedWork verified_work(const std::vector<ByRank>& parts) {
  VerifiedWork sum;
  for (const ByRank& part : parts) add(sum, verified_work(part));
  return sum;
}

/// Whether the rank completed its part of the run. Work still unverified at an early stop is discarded, and a
/// resumed run repeats it.
bool is_whole(const RankRecords& rank) {
  return rank.end && text_at(rank.end->body, "reason") != "signal";
}

/// Work done and verified, summed over all ranks and parts of the run, by kind and precision. For votes of
/// one unit, `verified` is the min over the ranks.
std::map<std::string, std::map<std::string, WorkShare>> work_shares(const std::vector<ByRank>& parts) {
  const std::string one_unit = to_string(WorkKind::vote_one_unit);
  std::map<std::string, std::map<std::string, WorkShare>> all;
  std::map<std::string, std::map<int, double>> units;  // verified by unit and rank
  for (const ByRank& ranks : parts)
    for (const auto& [number, rank] : ranks)
      for (const Json& part : member(rank.last_body(), "parts"))
        for (const Json& one : member(part, "shares")) {
          WorkShare& sum = all[text_at(one, "kind")][text_at(one, "precision")];
          const double verified = value_at<double>(one, "verified").value_or(0);
          sum.done += is_whole(rank) ? value_at<double>(one, "done").value_or(0) : verified;
          sum.verified += verified;
          if (text_at(one, "kind") == one_unit) units[text_at(one, "precision")][number] += verified;
        }
  for (const auto& [unit, by_rank] : units)
    all[one_unit][unit].verified = std::min_element(by_rank.begin(), by_rank.end(), [](auto& a, auto& b) {
                                     return a.second < b.second;
                                   })->second;
  return all;
}

}  // namespace

Json verified_share(const std::vector<ByRank>& parts) {
  Json shares = Json::object();
  for (int kind = 0; kind <= static_cast<int>(WorkKind::files); ++kind)
    shares[to_string(static_cast<WorkKind>(kind))] = nullptr;
  for (const auto& [kind, precisions] : work_shares(parts)) {
    double done = 0, verified = 0;
    for (const auto& [precision, share] : precisions) {
      done += share.done;
      verified += share.verified;
    }
    if (done > 0 && shares.contains(kind)) shares[kind] = std::min(verified / done, 1.0);
  }
  return shares;
}

namespace {

/// Errors per operation that this run would have detected with a probability of 95 %. At least one of n
/// operations is wrong with probability 1 - (1 - rate)^n. Null: nothing was verified.
Json detectable_error_rate(const std::vector<ByRank>& parts) {
  constexpr double operations_for_95_percent = 2.9957;  // -ln 0.05
  Json rates = Json::object();
  for (const auto& [kind, precisions] : work_shares(parts))
    for (const auto& [precision, share] : precisions) {
      const Json rate = share.verified > 0 ? Json(operations_for_95_percent / share.verified) : Json();
      (precision.empty() ? rates[kind] : rates[kind][precision]) = rate;
    }
  return rates;
}

/// Max elapsed seconds over the ranks of a part; null if none reported it.
Json elapsed_seconds(const ByRank& ranks) {
  std::optional<double> elapsed;
  for (const auto& [number, rank] : ranks)
    if (const auto seconds = value_at<double>(rank.last_body(), "elapsed_seconds"))
      elapsed = std::max(elapsed.value_or(0), *seconds);
  return elapsed ? Json(*elapsed) : Json();
}

Json elapsed_seconds(const std::vector<ByRank>& parts) {
  Json sum;
  for (const ByRank& part : parts)
    if (const Json one = elapsed_seconds(part); !one.is_null())
      sum = sum.is_null() ? one : Json(sum.get<double>() + one.get<double>());
  return sum;
}

/// The distinct end reasons of the ranks; null if all were killed, so that none left an end record.
Json end_reasons(const ByRank& ranks) {
  std::set<std::string> reasons;
  for (const auto& [number, rank] : ranks)
    if (rank.end) reasons.insert(text_at(rank.end->body, "reason"));
  return reasons.empty() ? Json() : Json(fmt::format("{}", fmt::join(reasons, ", ")));
}

/// Summary of each part; a resumed run has several.
Json parts_of_run(const std::vector<ByRank>& parts) {
  Json all = Json::array();
  for (const ByRank& part : parts) {
    const Span span = span_of(part);
    std::int64_t steps = 0;
    for (const auto& [number, rank] : part) steps = std::max(steps, steps_of(rank));
    all.push_back({{"started_at", span.began_json()},
                   {"ended_at", span.ended_json()},
                   {"arguments", member(first_start(part), "arguments")},
                   {"elapsed_seconds", elapsed_seconds(part)},
                   {"steps", steps},
                   {"end_reason", end_reasons(part)},
                   {"verified_work", work_to_json(verified_work(part))}});
  }
  return all;
}

/// Counts the results of a run as tests. In loadtest, only an entry that covers all ranks is a suite test.
Json test_summary(const std::vector<ByRank>& parts, const ByRank& ranks, const Json& results) {
  const bool is_suite = is_loadtest(ranks);
  std::vector<const Json*> tests;
  for (const Json& entry : results)
    if (!is_suite || entry["rank"].is_null()) tests.push_back(&entry);
  const auto successful = std::count_if(tests.begin(), tests.end(),
                                        [](const Json* test) { return (*test)["success"].get<bool>(); });
  const auto seconds = value_at<double>(first_start(ranks), "requested_duration_seconds");
  return {{"requested_duration_minutes", seconds ? Json(*seconds / 60) : Json()},
          {"requested_duration_seconds", member(first_start(ranks), "requested_duration_seconds")},
          {"requested_steps", member(first_start(ranks), "requested_steps")},
          {"actual_duration_seconds", elapsed_seconds(parts)},
          {"total_tests", tests.size()},
          {"successful_tests", successful},
          {"failed_tests", static_cast<std::int64_t>(tests.size()) - successful}};
}

/// The record's body. A missing hostname or device UUID is filled in from the start record of its rank.
Json entry_of(const Record& record, const ByRank& ranks) {
  Json entry = record.body.is_object() ? record.body : Json::object();
  if (!entry.contains("time")) entry["time"] = utc_text(record.time);
  const auto found = ranks.find(value_at<int>(entry, "rank").value_or(-1));
  if (found == ranks.end()) return entry;
  const Json& identity = member(found->second.start_body(), "identity");
  if (text_at(entry, "hostname").empty()) entry["hostname"] = member(identity, "hostname");
  if (text_at(entry, "device_uuid").empty())
    entry["device_uuid"] = member(member(identity, "device"), "uuid");
  return entry;
}

Json entries_of(const std::vector<const Record*>& records, const ByRank& ranks) {
  Json all = Json::array();
  for (const Record* record : records) all.push_back(entry_of(*record, ranks));
  return all;
}

/// The faults. `reproduced` of one with a reproducer has the counts of all ranks that repeated it.
Json fault_entries(const std::vector<Record>& records, const ByRank& ranks) {
  Json all = entries_of(faults_of(records), ranks);
  for (const Record* record : records_of(records, RecordKind::notice))
    for (Json& fault : all)
      if (is_lasting(*record) && member(fault, "reproducer") == member(record->body, "reproducer"))
        fault["reproduced"].push_back({{"rank", record->rank},
                                       {"failed", member(record->body, "failed")},
                                       {"of", member(record->body, "of")}});
  return all;
}

/// The faults of all ranks that were counted but not recorded individually.
Json fault_repeats(const std::vector<ByRank>& parts) {
  Json all = Json::array();
  for (const ByRank& part : parts)
    for (const auto& [number, rank] : part)
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

/// Replaces NaN and infinities by null. JSON has neither, so the file would contain null anyway.
void drop_non_finite(Json& json) {
  if (json.is_structured())
    for (Json& element : json) drop_non_finite(element);
  else if (json.is_number_float() && !std::isfinite(json.get<double>()))
    json = nullptr;
}

Json or_empty(const Json& json, Json empty) {
  return json.is_null() ? std::move(empty) : json;
}

/// Every rank's metrics compared with the median of its device model.
Json peers(const std::vector<Record>& records) {
  std::vector<const Record*> in_time;
  for (const Record& record : records) in_time.push_back(&record);
  std::stable_sort(in_time.begin(), in_time.end(),
                   [](const Record* a, const Record* b) { return a->time < b->time; });
  PeerReview review;
  for (const Record* record : in_time) review.add(*record);
  return review.to_json();
}

}  // namespace

Json build_result(const std::vector<Record>& records, const Verdict& verdict) {
  const std::vector<ByRank> parts = parts_of(records);
  const ByRank ranks = parts.empty() ? ByRank() : parts.back();
  const Json& start = first_start(ranks);
  Json result = {{"schema", result_schema},
                 {"program_version", or_empty(member(start, "program_version"), program_version())},
                 {"run_id", member(start, "run_id")},
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
                 {"system_info", system_info(span_of(records, parts), ranks)},
                 {"results", results(ranks)},
                 {"verified_work", work_to_json(verified_work(parts))},
                 {"verified_share", verified_share(parts)},
                 {"detectable_error_rate", detectable_error_rate(parts)},
                 {"checks_not_run", checks_not_run(ranks)},
                 {"faults", fault_entries(records, ranks)},
                 {"fault_repeats", fault_repeats(parts)},
                 {"losses", entries_of(losses_of(records), ranks)},
                 {"findings", entries_of(findings_of(records), ranks)},
                 {"restarts", entries_of(restarts_of(records), ranks)},
                 {"parts_of_run", parts_of_run(parts)},
                 {"inventory", inventories(ranks)},
                 {"injected", !verdict.injections.empty()},
                 {"injections", verdict.injections},
                 {"counters", per_rank(ranks, "counters")},
                 {"telemetry", per_rank(ranks, "telemetry")},
                 {"peers", peers(records)}};
  result["test_summary"] = test_summary(parts, ranks, result["results"]);
  result["ranks"] = Json::array();
  for (const auto& [number, rank] : ranks) result["ranks"].push_back(rank_entry(number, rank, parts));
  result["nodes"] = node_verdicts(result, verdict.has_all_evidence);
  drop_non_finite(result);
  return result;
}

void set_verdict(Json& result, const Verdict& verdict) {
  result.update({{"verdict", verdict.name}, {"exit_code", verdict.exit_code}, {"reasons", verdict.reasons}});
  result["nodes"] = node_verdicts(result, verdict.has_all_evidence);
}

std::string result_text(const Json& result) {
  return result.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace egt
