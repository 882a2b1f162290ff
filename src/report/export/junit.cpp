#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/export/result_files.hpp"

namespace egt {
namespace {

constexpr std::size_t max_faults_told = 100;  // per testcase; result.json has all
constexpr std::size_t max_places = 4;         // suspects in a message
constexpr int whole_run = -1;                 // instead of a rank

struct Case {
  std::string name;
  double seconds = 0;
  const char* outcome = "";  ///< XML element: failure, error or skipped; empty: passed
  std::string type = {}, message = {}, text = {};
};

struct Suite {
  std::string hostname;
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> properties;
  std::vector<Case> cases;

  bool passed() const { return std::all_of(cases.begin(), cases.end(), is_passed); }
  static bool is_passed(const Case& test) { return *test.outcome == '\0'; }
};
using Suites = std::map<int, Suite>;  // by rank; the run's suite comes first

std::string value_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : one_line(value);
}

/// All non-null values; members of objects as "PREFIX.KEY".
void add_properties(Suite& suite, const std::string& name, const Json& value) {
  if (value.is_object())
    for (const auto& [key, inner] : value.items())
      add_properties(suite, name.empty() ? key : name + "." + key, inner);
  else if (!value.empty())
    suite.properties.emplace_back(name, value_text(value));
}

/// For each key with a value, its prefix text and the value.
std::string reported(const Json& json, std::initializer_list<std::pair<const char*, const char*>> keys) {
  std::string all;
  for (const auto& [key, words] : keys)
    if (const Json& value = member(json, key); !value.empty() && value != "")
      all += words + value_text(value);
  return all;
}

/// "GPU 1, rank 1 on node1, device GPU-c40f": where a fault, finding or loss belongs. If several ranks are
/// suspected, of each.
std::string place_text(const Json& result, const Json& evidence) {
  Json of = member(evidence, "suspects");
  const Json& rank = member(evidence, "rank");
  if (!rank.is_null()) of = Json::array({rank});
  std::vector<std::string> places;
  for (const Json& one : member(result, "ranks"))
    if (std::find(of.begin(), of.end(), member(one, "rank")) != of.end())
      places.push_back(fmt::format("{}, {}{}", device_label(one, false),
                                   reported(one, {{"rank", "rank "}, {"hostname", " on "}}),
                                   reported(member(one, "device"), {{"uuid", ", device "}})));
  if (places.size() > max_places) {
    const std::size_t more = places.size() - max_places;
    places.resize(max_places);
    places.push_back(fmt::format("{} more", more));
  }
  if (!places.empty()) return fmt::format("{}", fmt::join(places, " or "));
  const std::string known =
      reported(evidence, {{"rank", "rank "}, {"hostname", " on "}, {"device_uuid", ", device "}});
  return known.empty() ? "a device that is not known" : known;
}

/// "GPU 1, rank 1 on node1, device GPU-c40f, step 40: memory fault in block 3"
std::string fault_text(const Json& result, const Json& fault) {
  return place_text(result, fault) +
         reported(fault, {{"step", ", step "}, {"kind", ": "}, {"where", " fault in "}});
}

std::string lost_text(const Json& loss) {
  return reported(loss, {{"how", "the rank was lost: "}, {"phase", ", in "}, {"step", ", step "}});
}

std::string fault_lines(const Json& result, const Json& fault) {
  return fault_text(result, fault) +
         reported(fault, {{"offset", ", offset "},
                          {"count", ", elements "},
                          {"detector", "\n  found by: "},
                          {"phase", "\n  phase:    "},
                          {"blame", "\n  blame:    "},
                          {"suspects", ", of ranks "},
                          {"expected", "\n  expected: "},
                          {"actual", "\n  actual:   "},
                          {"xor", "\n  xor:      "},
                          {"time", "\n  time:     "}}) +
         "\n";
}

std::string fault_lines(const Json& result, const std::vector<const Json*>& faults) {
  std::string lines;
  for (std::size_t i = 0; i < std::min(faults.size(), max_faults_told); ++i)
    lines += fault_lines(result, *faults[i]);
  if (faults.size() > max_faults_told)
    lines += fmt::format("and {}: see result.json\n", counted(faults.size() - max_faults_told, "more fault"));
  return lines;
}

/// The run's faults. Empty for selftest, which injects all its faults.
std::vector<const Json*> faults_of(const Json& result) {
  std::vector<const Json*> faults;
  if (text_at(result, "command") == "selftest") return faults;
  for (const Json& fault : member(result, "faults")) faults.push_back(&fault);
  return faults;
}

/// Faults of the entry's part and rank, and those of the rank without a part. If there are none, all faults
/// of the rank.
std::vector<const Json*> faults_of(const Json& result, const Json& entry) {
  const Json& rank = member(entry, "rank");
  std::vector<const Json*> of_rank, of_part;
  for (const Json* fault : faults_of(result)) {
    if (!rank.is_null() && member(*fault, "rank") != rank) continue;
    const std::string part = text_at(*fault, "part");
    if (!rank.is_null()) of_rank.push_back(fault);
    if (part == text_at(entry, "test_name") || (part.empty() && !rank.is_null())) of_part.push_back(fault);
  }
  return of_part.empty() ? of_rank : of_part;
}

bool is_injected(const Json& result) {
  return value_at<bool>(result, "injected").value_or(false);
}

/// Whether the run detected a problem, as opposed to being incomplete.
bool has_findings(const Json& result) {
  const auto code = value_at<int>(result, "exit_code");
  return code == exit_code::fault || code == exit_code::degraded;
}

double run_seconds(const Json& result) {
  return value_at<double>(member(result, "test_summary"), "actual_duration_seconds").value_or(0);
}

/// The parts of burn and verify run concurrently for the whole run. Those of other commands have their own
/// durations, or none.
double concurrent_seconds(const Json& result) {
  const std::string command = text_at(result, "command");
  return command == "burn" || command == "verify" ? run_seconds(result) : 0;
}

Case case_of(const Json& result, const Json& entry) {
  Case test{.name = text_at(entry, "test_name"),
            .seconds = value_at<double>(entry, "duration_seconds").value_or(concurrent_seconds(result))};
  if (value_at<bool>(entry, "success").value_or(false)) return test;
  test.message = text_at(entry, "failure");
  if (test.message.empty()) test.message = "not successful";
  const bool is_undone = text_at(entry, "undone") == test.message;
  if (!member(entry, "rank").is_null()) test.message = place_text(result, entry) + ": " + test.message;
  test.text = test.message + "\n";
  if (has_findings(result) && !is_undone) {
    test.outcome = "failure";
    test.type = "wrong";
    if (const auto faults = faults_of(result, entry); !faults.empty()) {
      test.message = fault_text(result, *faults.front());
      test.text = fault_lines(result, faults) + test.text;
    }
  } else {
    const bool is_interrupted = text_at(result, "verdict") == "interrupted";
    test.outcome = is_interrupted ? "skipped" : "error";
    test.type = is_interrupted ? "interrupted" : "incomplete";
  }
  return test;
}

/// What decided the verdict, in one line: its first evidence with the device, else its first reason.
std::string decisive_text(const Json& result) {
  const std::string verdict = text_at(result, "verdict");
  const auto first = [&](const char* list) { return *member(result, list).begin(); };
  if (const auto faults = faults_of(result); verdict == "fault" && !faults.empty())
    return fault_text(result, *faults.front());
  if (verdict == "incomplete" && !member(result, "losses").empty())
    return place_text(result, first("losses")) + ": " + lost_text(first("losses"));
  if (verdict == "degraded" && !member(result, "findings").empty())
    return place_text(result, first("findings")) + ": " + text_at(first("findings"), "text");
  std::vector<std::string> reasons;
  for (const Json& reason : member(result, "reasons")) reasons.push_back(value_text(reason));
  if (is_injected(result) && reasons.size() > 1) return reasons[1];  // the first states the injection
  return reasons.empty() ? "no reason" : reasons.front();
}

/// The verdict with all faults and all reasons.
Case verdict_case(const Json& result) {
  Case test{.name = "verdict", .seconds = run_seconds(result)};
  const auto code = value_at<int>(result, "exit_code").value_or(exit_code::incomplete);
  if (code == exit_code::pass) return test;
  test.outcome = has_findings(result) ? "failure" : "error";
  test.type = text_at(result, "verdict");
  test.message = fmt::format("{} (verdict {}, exit code {}{})", decisive_text(result), test.type, code,
                             is_injected(result) ? ", injected" : "");
  test.text = fault_lines(result, faults_of(result));
  for (const Json& repeat : member(result, "fault_repeats"))
    test.text += "suppressed: " +
                 reported(repeat, {{"kind", ""},
                                   {"detector", " faults found by "},
                                   {"rank", ", rank "},
                                   {"count", ", times: "},
                                   {"last_time", ", last "}}) +
                 "\n";
  for (const Json& reason : member(result, "reasons")) test.text += value_text(reason) + "\n";
  return test;
}

int rank_of(const Json& json) {
  return std::max(value_at<int>(json, "rank").value_or(whole_run), whole_run);
}

/// Ranks that did not complete the run.
void add_lost_ranks(Suites& suites, const Json& result) {
  for (const Json& loss : member(result, "losses")) {
    const std::string what = place_text(result, loss) + ": " + lost_text(loss);
    suites[rank_of(loss)].cases.push_back({.name = "rank is not lost",
                                           .outcome = "error",
                                           .type = text_at(loss, "how"),
                                           .message = what,
                                           .text = what + reported(loss, {{"text", "\n"}})});
  }
  for (const Json& rank : member(result, "ranks"))
    if (const Json& error = member(rank, "error"); !error.is_null())
      suites[rank_of(rank)].cases.push_back({.name = "rank completed",
                                             .outcome = "error",
                                             .type = text_at(error, "code"),
                                             .message = text_at(error, "what"),
                                             .text = reported(error, {{"what", ""}, {"where", "\nin "}})});
}

Suites suites_of(const Json& result) {
  Suites suites;
  Suite& run = suites[whole_run];
  run.hostname = text_at(member(result, "system_info"), "hostname");
  for (const char* key : {"program_version", "schema", "command", "arguments", "verdict", "exit_code",
                          "injected", "system_info", "options", "verified_work"})
    add_properties(run, key, member(result, key));
  run.cases.push_back(verdict_case(result));
  for (const Json& rank : member(result, "ranks")) {
    Suite& suite = suites[rank_of(rank)];
    suite.hostname = text_at(rank, "hostname");
    add_properties(suite, "", rank);
  }
  for (const Json& entry : member(result, "results"))
    suites[rank_of(entry)].cases.push_back(case_of(result, entry));
  add_lost_ranks(suites, result);
  for (auto& [rank, suite] : suites) {
    std::stable_partition(suite.cases.begin(), suite.cases.end(), std::not_fn(Suite::is_passed));
    for (const Case& test : suite.cases) suite.seconds += test.seconds;
    suite.seconds = std::min(suite.seconds, run_seconds(result));  // cases may run concurrently
  }
  return suites;
}

/// "2026-01-31T23:59:59" in UTC, as the schemas require. `text` has fractions and a time zone.
std::string timestamp(const std::string& text) {
  const std::string whole = text.substr(0, 19);
  const std::string shape = "0000-00-00T00:00:00";
  const bool is_time =
      std::equal(whole.begin(), whole.end(), shape.begin(), shape.end(),
                 [](char c, char wanted) { return wanted == '0' ? c >= '0' && c <= '9' : c == wanted; });
  return is_time ? whole : "1970-01-01T00:00:00";
}

/// `text`, or `otherwise` if it is empty, for attributes that must not be empty.
std::string or_else(const std::string& text, const char* otherwise) {
  return xml_attribute(text.empty() ? otherwise : text);
}

std::string case_xml(const Case& test, const std::string& classname) {
  std::string xml = fmt::format(R"(    <testcase name="{}" classname="{}" time="{:.3f}")",
                                or_else(test.name, "unnamed"), xml_attribute(classname), test.seconds);
  if (Suite::is_passed(test)) return xml + "/>\n";
  return xml + fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n",
                           test.outcome, xml_attribute(test.type), xml_attribute(test.message),
                           xml_text(test.text));
}

std::string suite_xml(int id, const std::string& name, const std::string& began, const std::string& words,
                      const Suite& suite) {
  const auto count = [&](std::string_view outcome) {
    return std::count_if(suite.cases.begin(), suite.cases.end(),
                         [&](const Case& test) { return test.outcome == outcome; });
  };
  std::string xml = fmt::format(
      R"(  <testsuite name="{0}" package="{0}" id="{1}" timestamp="{2}" hostname="{3}" tests="{4}" failures="{5}")"
      R"( errors="{6}" skipped="{7}" time="{8:.3f}">)"
      "\n    <properties>\n",
      xml_attribute(name), id, timestamp(began), or_else(suite.hostname, "localhost"), suite.cases.size(),
      count("failure"), count("error"), count("skipped"), suite.seconds);
  for (const auto& [key, value] : suite.properties)
    xml += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", or_else(key, "unnamed"),
                       xml_attribute(value));
  xml += "    </properties>\n";
  for (const Case& test : suite.cases) xml += case_xml(test, name);
  return xml +
         fmt::format("    <system-out>{}</system-out>\n    <system-err/>\n  </testsuite>\n", xml_text(words));
}

}  // namespace

std::string junit_xml(const Json& result) {
  const std::string name = fmt::format("extreme_gpu_trainer.{}", text_at(result, "command"));
  const std::string began = text_at(member(result, "system_info"), "started_at");
  std::string words, xml;
  for (const Json& reason : member(result, "reasons")) words += value_text(reason) + "\n";
  const Suites suites = suites_of(result);
  int id = 0;
  for (const bool passed : {false, true})
    for (const auto& [rank, suite] : suites) {
      if (suite.cases.empty() || suite.passed() != passed) continue;
      const bool is_run = rank == whole_run;
      xml += suite_xml(id++, is_run ? name : fmt::format("{}.rank{}", name, rank), began, is_run ? words : "",
                       suite);
    }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n" + xml + "</testsuites>\n";
}

}  // namespace egt
