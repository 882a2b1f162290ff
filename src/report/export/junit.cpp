#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/export/result_files.hpp"

namespace egt {
namespace {

constexpr std::size_t max_faults_told = 100;  // per testcase; result.json has all
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

std::string fault_lines(const Json& fault) {
  return reported(fault, {{"rank", "rank "},
                          {"hostname", " on "},
                          {"device_uuid", ", device "},
                          {"step", ", step "},
                          {"kind", ": "},
                          {"where", " fault in "},
                          {"offset", ", offset "},
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

std::string fault_lines(const std::vector<const Json*>& faults) {
  std::string lines;
  for (std::size_t i = 0; i < std::min(faults.size(), max_faults_told); ++i) lines += fault_lines(*faults[i]);
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

/// Whether the run detected a problem, as opposed to being incomplete.
bool has_findings(const Json& result) {
  const auto code = value_at<int>(result, "exit_code");
  return code == exit_code::fault || code == exit_code::degraded;
}

Case case_of(const Json& result, const Json& entry) {
  Case test{.name = text_at(entry, "test_name"),
            .seconds = value_at<double>(entry, "duration_seconds").value_or(0)};
  if (value_at<bool>(entry, "success").value_or(false)) return test;
  test.message = text_at(entry, "failure");
  if (test.message.empty()) test.message = "not successful";
  test.text = test.message + "\n";
  if (has_findings(result) && text_at(entry, "undone") != test.message) {
    test.outcome = "failure";
    test.type = "wrong";
    test.text += fault_lines(faults_of(result, entry));
  } else {
    const bool is_interrupted = text_at(result, "verdict") == "interrupted";
    test.outcome = is_interrupted ? "skipped" : "error";
    test.type = is_interrupted ? "interrupted" : "incomplete";
  }
  return test;
}

/// The verdict with all reasons and all faults.
Case verdict_case(const Json& result) {
  const Json& seconds = member(result, "test_summary");
  Case test{.name = "verdict", .seconds = value_at<double>(seconds, "actual_duration_seconds").value_or(0)};
  const auto code = value_at<int>(result, "exit_code").value_or(exit_code::incomplete);
  if (code == exit_code::pass) return test;
  test.outcome = has_findings(result) ? "failure" : "error";
  test.type = text_at(result, "verdict");
  test.message = fmt::format("{} (exit code {})", test.type, code);
  for (const Json& reason : member(result, "reasons")) test.text += value_text(reason) + "\n";
  if (!test.text.empty()) test.message += ": " + test.text.substr(0, test.text.find('\n'));
  test.text += fault_lines(faults_of(result));
  for (const Json& repeat : member(result, "fault_repeats"))
    test.text += "suppressed: " +
                 reported(repeat, {{"kind", ""},
                                   {"detector", " faults found by "},
                                   {"rank", ", rank "},
                                   {"count", ", times: "},
                                   {"last_time", ", last "}}) +
                 "\n";
  return test;
}

int rank_of(const Json& json) {
  return std::max(value_at<int>(json, "rank").value_or(whole_run), whole_run);
}

/// Ranks that did not complete the run.
void add_lost_ranks(Suites& suites, const Json& result) {
  for (const Json& loss : member(result, "losses")) {
    const std::string what =
        reported(loss, {{"how", "the rank was lost: "}, {"phase", ", in "}, {"step", ", step "}});
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
  run.seconds = run.cases.front().seconds;
  for (const Json& rank : member(result, "ranks")) {
    Suite& suite = suites[rank_of(rank)];
    suite.hostname = text_at(rank, "hostname");
    add_properties(suite, "", rank);
  }
  for (const Json& entry : member(result, "results"))
    suites[rank_of(entry)].cases.push_back(case_of(result, entry));
  add_lost_ranks(suites, result);
  for (auto& [rank, suite] : suites)
    if (rank != whole_run)
      for (const Case& test : suite.cases) suite.seconds += test.seconds;
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
  if (*test.outcome == '\0') return xml + "/>\n";
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
  int id = 0;
  for (const auto& [rank, suite] : suites_of(result)) {
    if (suite.cases.empty()) continue;
    const bool is_run = rank == whole_run;
    xml += suite_xml(id++, is_run ? name : fmt::format("{}.rank{}", name, rank), began, is_run ? words : "",
                     suite);
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n" + xml + "</testsuites>\n";
}

}  // namespace egt
