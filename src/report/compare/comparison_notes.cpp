#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "judge/history.hpp"
#include "judge/version.hpp"
#include "report/compare/comparison_parts.hpp"

namespace egt {
namespace {

using Notes = std::vector<std::string>;

/// Notes on a single file. Its verdict is among the reasons if it is worse than the baseline's.
void note_outcome(const Comparison& comparison, std::size_t number, Notes& notes) {
  const ComparedFile& file = comparison.files[number];
  const std::vector<std::size_t>& worse = comparison.worse_verdicts;
  const bool is_baseline = number == comparison.used().front() && comparison.used().size() > 1;
  const std::string who = is_baseline ? fmt::format("the baseline {}", file.label) : file.label;
  if (const std::string verdict = text_at(file.result, "verdict");
      verdict != "pass" && std::find(worse.begin(), worse.end(), number) == worse.end())
    notes.push_back(fmt::format("{}: its verdict is {}, not pass{}", who,
                                verdict.empty() ? "not there" : verdict, first_reason(file.result)));
  if (value_at<bool>(file.result, "injected").value_or(false))
    notes.push_back(fmt::format("{}: faults were injected", who));
  const std::string version = text_at(file.result, "program_version");
  if (version != program_version())
    notes.push_back(fmt::format("{}: written by version {} of the program, this is {}", who,
                                version.empty() ? "(unknown)" : version, program_version()));
}

std::string models_text(const Json& result) {
  std::vector<std::string> models = device_models(result);
  models.erase(std::unique(models.begin(), models.end()), models.end());
  return models.empty() ? "unknown devices" : fmt::format("{}", fmt::join(models, " and "));
}

/// Cuts long values, since some options are lists.
std::string short_text(const Json& value) {
  const std::string text = one_line(value);
  return text.size() <= 40 ? text : text.substr(0, 37) + "...";
}

/// Options that differ between two results of one command, except for duration and location.
std::string other_options(const Json& one, const Json& first) {
  const Json options = options_with_effect(member(one, "options"));
  if (!options.is_object() || !member(first, "options").is_object()) return "";
  if (text_at(one, "command") != text_at(first, "command")) return "";
  std::vector<std::string> differing;
  for (const auto& [name, value] : options.items())
    if (name != "duration" && name != "steps" && value != member(first["options"], name))
      differing.push_back(
          fmt::format("--{} {} ({})", name, short_text(value), short_text(member(first["options"], name))));
  return list_text(differing);
}

/// Notes on a file compared with the first.
void note_differences(const ComparedFile& file, const ComparedFile& first, Notes& notes) {
  const std::string models = models_text(file.result), first_models = models_text(first.result);
  if (models != first_models)
    notes.push_back(
        fmt::format("{} ran on {}, {} on {}: different devices are compared, but not judged for regressions",
                    file.label, models, first.label, first_models));
  const Json& system = member(file.result, "system_info");
  const Json& first_system = member(first.result, "system_info");
  for (const char* version : {"driver_version", "cuda_version", "nccl_version"})
    if (const Json& one = member(system, version), &other = member(first_system, version); one != other)
      notes.push_back(fmt::format("{}: {} {} ({}: {})", file.label, version, short_text(one), first.label,
                                  short_text(other)));
  if (const std::string options = other_options(file.result, first.result); !options.empty())
    notes.push_back(fmt::format("{}: other options than {}: {}", file.label, first.label, options));
}

/// Tests that only some files contain, grouped by these files.
void note_missing(const Comparison& comparison, const std::vector<std::size_t>& used, Notes& notes) {
  std::vector<std::string> order;
  std::map<std::string, std::set<std::size_t>> files_by_test;
  for (const ComparedTest& test : comparison.tests) {
    auto& files = files_by_test[test.test];
    if (files.empty()) order.push_back(test.test);
    for (const ComparedFigure& value : test.values) files.insert(value.file);
  }
  std::map<std::set<std::size_t>, std::vector<std::string>> tests_by_files;
  for (const std::string& test : order)
    if (files_by_test[test].size() < used.size()) tests_by_files[files_by_test[test]].push_back(test);
  for (const auto& [files, tests] : tests_by_files) {
    std::vector<std::string> labels;
    for (const std::size_t file : files) labels.push_back(comparison.files[file].label);
    notes.push_back(fmt::format("only in {}: {}", fmt::join(labels, ", "), list_text(tests)));
  }
}

void add_once(std::vector<std::string>& texts, std::string text) {
  if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(std::move(text));
}

/// Why single metrics are not compared or not trusted.
void note_tests(const Comparison& comparison, Notes& notes) {
  std::vector<std::string> without, zero;
  std::map<std::size_t, std::vector<std::string>> failed, missing;
  for (const ComparedTest& test : comparison.tests) {
    if (test.figure.empty())
      add_once(without, test.test);
    else if (test.baseline().value == 0.0)
      add_once(zero, test.test);
    for (const ComparedFigure& one : test.values) {
      const std::string name = fmt::format("{}, {}", test.test, to_text(one.configuration));
      if (!one.success)
        add_once(failed[one.file], one.failure.empty() ? name : fmt::format("{} ({})", name, one.failure));
      if (!test.figure.empty() && !one.value && !one.is_missing)
        missing[one.file].push_back(fmt::format("{}, {}", test.name, to_text(one.configuration)));
    }
  }
  for (const auto& [file, tests] : failed)
    notes.push_back(fmt::format("failed in {}: {}", comparison.files[file].label, list_text(tests)));
  for (const auto& [file, tests] : missing)
    notes.push_back(fmt::format("not measured, or not on every rank, in {}: {}", comparison.files[file].label,
                                list_text(tests)));
  if (!zero.empty()) notes.push_back(fmt::format("the baseline is 0, so no speed-up: {}", list_text(zero)));
  if (!without.empty())
    notes.push_back(fmt::format("without a metric, so compared by success only: {}", list_text(without)));
}

}  // namespace

std::vector<std::string> notes_of(const Comparison& comparison) {
  Notes notes;
  const std::vector<std::size_t> used = comparison.used();
  for (const std::size_t file : used) note_outcome(comparison, file, notes);
  for (const std::size_t file : used)
    if (file != used.front()) note_differences(comparison.files[file], comparison.files[used.front()], notes);
  note_missing(comparison, used, notes);
  note_tests(comparison, notes);
  for (std::string& note : notes) note = printable(note);
  return notes;
}

}  // namespace egt
