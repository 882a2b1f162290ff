#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "report/export/result_files.hpp"

/// Output 2.0 of OCP Test and Validation: github.com/opencomputeproject/ocp-diag-core, json_spec.
namespace egt {
namespace {

struct UnitRow {
  std::string_view ending;  ///< of a value's name
  const char* unit;
};
constexpr UnitRow unit_rows[] = {{"samples_per_second", "1/s"},
                                 {"items_per_second", "1/s"},
                                 {"gb_per_second", "GB/s"},
                                 {"gb_per_s", "GB/s"},
                                 {"gb_per_s_each_way", "GB/s"},
                                 {"gbit_per_second", "Gbit/s"},
                                 {"tflops", "TFLOP/s"},
                                 {"_percent", "%"},
                                 {"_seconds", "s"},
                                 {"_ms", "ms"},
                                 {"_us", "us"},
                                 {"_bytes", "B"},
                                 {"_mb", "MiB"},
                                 {"_mhz", "MHz"},
                                 {"power_w", "W"},
                                 {"power_w_mean", "W"},
                                 {"power_limit_w", "W"}};

/// Values that must be 0 or false on every device.
constexpr std::string_view zero_values[] = {"wrong_words", "wrong_rounds",  "wrong_checks",
                                            "mismatches",  "disagreements", "below_limit"};

/// "2026-01-31T23:59:59Z". Times that are no UTC time are 1970, since the format requires one.
std::string date_time(const std::string& text) {
  constexpr std::string_view shape = "0000-00-00T00:00:00";
  const std::string whole = text.substr(0, shape.size());
  const bool is_time =
      std::equal(whole.begin(), whole.end(), shape.begin(), shape.end(), [](char c, char wanted) {
        return wanted == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c == wanted;
      });
  return (is_time ? whole : "1970-01-01T00:00:00") + "Z";
}

std::string text_or(const Json& json, const char* key, const char* otherwise) {
  const std::string text = text_at(json, key);
  return text.empty() ? otherwise : text;
}

class Output {
 public:
  explicit Output(const Json& result)
      : result_(result),
        system_(member(result, "system_info")),
        is_injected_(value_at<bool>(result, "injected").value_or(false) ||
                     text_at(result, "command") == "selftest"),
        start_(date_time(text_at(system_, "started_at"))),
        end_(date_time(text_at(system_, "ended_at"))) {
    for (const Json& rank : member(result, "ranks"))
      if (const auto number = value_at<int>(rank, "rank")) ranks_.insert(*number);
  }

  std::string text() {
    add(start_, "schemaVersion", {{"major", 2}, {"minor", 0}});
    of_run("testRunStart", {{"name", "extreme_gpu_trainer " + text_at(result_, "command")},
                            {"version", text_or(result_, "program_version", "unknown")},
                            {"commandLine", command_line()},
                            {"parameters", options()},
                            {"dutInfo", device_under_test()},
                            {"metadata", {{"injected", is_injected_}}}});
    for (const Json& entry : member(result_, "results")) add_entry(entry);
    add_verdict();
    for (const Json& loss : member(result_, "losses"))
      of_run("error", {{"symptom", "rank-" + text_or(loss, "how", "lost")}, {"message", loss_text(loss)}});
    for (const Json& rank : member(result_, "ranks"))
      if (const Json& error = member(rank, "error"); error.is_object())
        of_run("error", {{"symptom", text_or(error, "code", "error")}, {"message", text_at(error, "what")}});
    for (const Json& reason : member(result_, "reasons"))
      if (reason.is_string())
        of_run("log", {{"severity", passed() ? "INFO" : "WARNING"}, {"message", reason}});
    of_run("testRunEnd", {{"status", status(passed() || failed())},
                          {"result", passed()   ? "PASS"
                                     : failed() ? "FAIL"
                                                : "NOT_APPLICABLE"}});
    return text_;
  }

 private:
  std::string verdict() const { return text_at(result_, "verdict"); }
  bool passed() const { return verdict() == "pass"; }
  bool failed() const { return verdict() == "fault" || verdict() == "degraded"; }
  const char* status(bool is_complete) const {
    return is_complete ? "COMPLETE" : verdict() == "interrupted" ? "SKIP" : "ERROR";
  }
  Json options() const {
    const Json& given = member(result_, "options");
    return given.is_object() ? given : Json::object();
  }
  std::string command_line() const {
    std::string line = "extreme_gpu_trainer";
    for (const Json& argument : member(result_, "arguments"))
      line += " " + (argument.is_string() ? argument.get<std::string>() : one_line(argument));
    return line;
  }

  void add(const std::string& time, const char* artifact, const Json& body) {
    text_ += one_line({{"sequenceNumber", sequence_++}, {"timestamp", time}, {artifact, body}}) + "\n";
  }
  void of_run(const char* kind, const Json& body) {
    add(std::string_view(kind) == "testRunStart" ? start_ : end_, "testRunArtifact", {{kind, body}});
  }
  void of_step(const char* kind, const Json& body) {
    add(end_, "testStepArtifact", {{"testStepId", std::to_string(step_)}, {kind, body}});
  }

  Json device_under_test() const {
    Json platforms = Json::array(), hardware = Json::array(), software = Json::array();
    Json uuids = Json::object();
    for (const Json& host : member(system_, "hostnames"))
      if (host.is_string()) platforms.push_back({{"info", host}});
    for (const Json& rank : member(result_, "ranks")) {
      const auto number = value_at<int>(rank, "rank");
      if (!number) continue;
      const Json& device = member(rank, "device");
      Json info = {{"hardwareInfoId", std::to_string(*number)},
                   {"name", text_or(device, "name", "unknown")},
                   {"partType", text_at(rank, "backend") == "cuda" ? "GPU" : "CPU"},
                   {"computerSystem", text_at(rank, "hostname")}};
      if (const std::string serial = text_at(device, "serial"); !serial.empty())
        info["serialNumber"] = serial;
      if (const std::string bus = text_at(device, "pci_bus_id"); !bus.empty()) info["location"] = bus;
      if (const std::string uuid = text_at(device, "uuid"); !uuid.empty())
        uuids[fmt::format("uuid of {}", *number)] = uuid;
      hardware.push_back(std::move(info));
    }
    const auto add_software = [&](const char* name, const std::string& version, const char* type) {
      if (!version.empty())
        software.push_back(
            {{"softwareInfoId", name}, {"name", name}, {"version", version}, {"softwareType", type}});
    };
    add_software("extreme_gpu_trainer", text_at(result_, "program_version"), "APPLICATION");
    add_software("driver", text_at(system_, "driver_version"), "SYSTEM");
    for (const char* name : {"cuda", "cublas", "nccl", "mpi"})
      add_software(name, text_at(system_, fmt::format("{}_version", name)), "SYSTEM");
    return {{"dutInfoId", text_or(system_, "hostname", "unknown")},
            {"platformInfos", platforms},
            {"hardwareInfos", hardware},
            {"softwareInfos", software},
            {"metadata", uuids}};
  }

  static Json validators(const char* type, const Json& value) {
    return Json::array({Json({{"type", type}, {"value", value}})});
  }
  void add_hardware(Json& body, const Json& of) const {
    if (const auto rank = value_at<int>(of, "rank"); rank && ranks_.contains(*rank))
      body["hardwareInfoId"] = std::to_string(*rank);
  }
  /// An injected fault is no fault of the hardware.
  void diagnose(const std::string& what, std::string type, const std::string& message, const Json& of) {
    if (is_injected_ && type == "FAIL") type = "UNKNOWN";
    Json body = {{"verdict", what}, {"type", type}, {"message", message}};
    add_hardware(body, of);
    of_step("diagnosis", body);
  }

  /// The numbers of an entry and, of nested objects, "NAME.KEY".
  void measure(const std::string& name, const Json& value, const Json& entry) {
    if (value.is_object())
      for (const auto& [key, inner] : value.items())
        measure(name.empty() ? key : name + "." + key, inner, entry);
    const std::string_view key = std::string_view(name).substr(name.rfind('.') + 1);
    const bool is_zero =
        std::find(std::begin(zero_values), std::end(zero_values), key) != std::end(zero_values);
    if (name == "rank" || !(value.is_number() || (value.is_boolean() && is_zero))) return;
    if (value.is_number() && !std::isfinite(value.get<double>())) return;
    Json body = {{"name", name}, {"value", value}};
    // The unit may be of an outer name, as in step_ms.p50.
    for (std::string path = name; !path.empty() && !body.contains("unit");
         path.resize(path.rfind('.') == path.npos ? 0 : path.rfind('.')))
      for (const UnitRow& row : unit_rows)
        if (path.ends_with(row.ending)) body["unit"] = row.unit;
    if (is_zero) body["validators"] = validators("EQUAL", value.is_boolean() ? Json(false) : Json(0));
    add_hardware(body, entry);
    of_step("measurement", body);
  }

  void add_entry(const Json& entry) {
    const std::string name = text_or(entry, "test_name", "unnamed"), failure = text_at(entry, "failure");
    const bool succeeded = value_at<bool>(entry, "success").value_or(false);
    const bool is_failure = failed() && (failure.empty() || text_at(entry, "undone") != failure);
    of_step("testStepStart", {{"name", name}});
    measure("", entry, entry);
    if (succeeded)
      diagnose(name + "-pass", "PASS", text_at(entry, "description"), entry);
    else if (is_failure)
      diagnose(name + "-fail", "FAIL", failure, entry);
    else
      diagnose(name + "-not-done", "UNKNOWN", failure, entry);
    of_step("testStepEnd", {{"status", status(succeeded || is_failure)}});
    ++step_;
  }

  /// All evidence. A device without evidence against it has passed only if the run has.
  void add_verdict() {
    of_step("testStepStart", {{"name", "verdict"}});
    std::set<int> accused;
    for (const Json& fault : member(result_, "faults")) {
      diagnose(text_or(fault, "kind", "unknown") + "-fault", "FAIL", fault_message(fault), fault);
      accused.insert(value_at<int>(fault, "rank").value_or(-1));
    }
    for (const Json& finding : member(result_, "findings")) {
      add_finding(finding);
      accused.insert(value_at<int>(finding, "rank").value_or(-1));
    }
    for (const Json& rank : member(result_, "ranks"))
      if (!accused.contains(value_at<int>(rank, "rank").value_or(-1)))
        diagnose(passed() ? "pass" : "unknown", passed() ? "PASS" : "UNKNOWN", device_identity(rank, true),
                 rank);
    of_step("testStepEnd", {{"status", status(passed() || failed())}});
  }

  static std::string fault_message(const Json& fault) {
    std::string message;
    for (const char* key : {"where", "step", "detector", "blame", "suspects", "offset", "count", "expected",
                            "actual", "device_uuid", "time"})
      if (const Json& value = member(fault, key); !value.empty() && value != "")
        message += fmt::format("{}{}: {}", message.empty() ? "" : ", ", key,
                               value.is_string() ? value.get<std::string>() : one_line(value));
    return message;
  }

  /// Its value is on the wrong side of what was expected.
  void add_finding(const Json& finding) {
    const std::string kind = text_or(finding, "kind", "unknown");
    const auto actual = value_at<double>(finding, "actual"), expected = value_at<double>(finding, "expected");
    if (actual && expected) {
      Json body = {{"name", kind},
                   {"value", *actual},
                   {"validators", validators(*actual < *expected   ? "GREATER_THAN_OR_EQUAL"
                                             : *actual > *expected ? "LESS_THAN_OR_EQUAL"
                                                                   : "NOT_EQUAL",
                                             *expected)}};
      add_hardware(body, finding);
      of_step("measurement", body);
    }
    diagnose(kind + "-degraded", "FAIL", finding_text(finding), finding);
  }

  const Json& result_;
  const Json& system_;
  const bool is_injected_;
  const std::string start_, end_;
  std::set<int> ranks_;
  std::string text_;
  int sequence_ = 0, step_ = 0;
};

}  // namespace

std::string ocp_text(const Json& result) {
  return Output(result).text();
}

}  // namespace egt
