#include "egt/core/record.hpp"

#include <iterator>
#include <optional>

#include "egt/core/clock.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr const char* record_kind_names[] = {"start",     "epoch",   "progress",  "fault",  "finding", "loss",
                                             "late_stop", "restart", "injection", "notice", "end"};
constexpr const char* blame_names[] = {"certain", "majority", "ambiguous"};
constexpr const char* how_names[] = {"stuck", "silent", "vanished", "failed"};

std::optional<RecordKind> parse_record_kind(const std::string& name) {
  for (std::size_t i = 0; i < std::size(record_kind_names); ++i)
    if (name == record_kind_names[i]) return static_cast<RecordKind>(i);
  return std::nullopt;
}

/// Unknown values are null in JSON, never a number with that meaning.
template <typename Integer>
Json number_or_null(Integer value) {
  return value < 0 ? Json() : Json(value);
}

}  // namespace

const char* to_string(RecordKind kind) {
  return record_kind_names[static_cast<int>(kind)];
}

const char* to_string(Blame blame) {
  return blame_names[static_cast<int>(blame)];
}

const char* to_string(Loss::How how) {
  return how_names[static_cast<int>(how)];
}

Json to_json(const Fault& fault) {
  Json json{{"time", utc_now()},
            {"kind", fault.kind},
            {"detector", fault.detector},
            {"rank", number_or_null(fault.rank)},
            {"hostname", fault.hostname},
            {"device_uuid", fault.device_uuid},
            {"step", number_or_null(fault.step)},
            {"phase", fault.phase},
            {"part", fault.part.empty() ? Json() : Json(fault.part)},
            {"where", fault.where},
            {"offset", fault.offset},
            {"expected", fault.expected},
            {"actual", fault.actual},
            {"xor", fault.xor_mask},
            {"count", fault.count},
            {"blame", to_string(fault.blame)},
            {"suspects", fault.suspects},
            {"incident", fault.incident.empty() ? Json() : Json(fault.incident)},
            {"provisional", fault.provisional},
            {"reproducer", fault.reproducer.empty() ? Json() : Json(fault.reproducer)}};
  if (!fault.map.is_null()) json["map"] = fault.map;
  return json;
}

Json to_json(const Finding& finding) {
  return {{"kind", finding.kind},
          {"rank", number_or_null(finding.rank)},
          {"hostname", finding.hostname},
          {"device_uuid", finding.device_uuid},
          {"where", finding.where},
          {"text", finding.text},
          {"expected", or_null(finding.expected)},
          {"actual", or_null(finding.actual)},
          {"ranks", finding.ranks}};
}

Json to_json(const Loss& loss) {
  return {{"how", to_string(loss.how)}, {"rank", number_or_null(loss.rank)},
          {"hostname", loss.hostname},  {"device_uuid", loss.device_uuid},
          {"phase", loss.phase},        {"step", number_or_null(loss.step)},
          {"seconds", loss.seconds},    {"text", loss.text}};
}

Json to_json(const LateStop& stop) {
  return {{"rank", number_or_null(stop.rank)},
          {"signal", stop.signal},
          {"phase", stop.phase},
          {"waits_for_peers", stop.waits_for_peers},
          {"step", number_or_null(stop.step)},
          {"seconds", stop.seconds}};
}

Json to_json(const Restart& restart) {
  return {{"number", restart.number},
          {"rank", number_or_null(restart.rank)},
          {"phase", restart.phase},
          {"seconds", restart.seconds},
          {"given_up_step", restart.given_up_step},
          {"resumed_step", restart.resumed_step}};
}

Json to_json(const Record& record) {
  return {{"kind", to_string(record.kind)},
          {"time", record.time},
          {"rank", record.rank},
          {"step", number_or_null(record.step)},
          {"body", record.body}};
}

bool from_json(const Json& json, Record& record) {
  if (!json.is_object()) return false;
  for (const char* name : {"kind", "time", "rank", "step", "body"})
    if (!json.contains(name)) return false;
  const Json& step = json["step"];
  if (!json["kind"].is_string() || !json["time"].is_number() || !json["rank"].is_number_integer() ||
      !(step.is_null() || step.is_number_integer()))
    return false;
  const std::optional<RecordKind> kind = parse_record_kind(json["kind"].get<std::string>());
  if (!kind) return false;
  record.kind = *kind;
  record.time = json["time"].get<double>();
  record.rank = json["rank"].get<int>();
  record.step = step.is_null() ? -1 : step.get<std::int64_t>();
  record.body = json["body"];
  return true;
}

}  // namespace egt
