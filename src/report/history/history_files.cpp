#include "report/history/history_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "report/tables/text_table.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t largest_history = 256u << 20;  // bytes; a line has about 2 kB
constexpr const char* extension = ".jsonl";

Status failed(const std::string& directory, const std::string& what) {
  return {StatusCode::unavailable, printable(fmt::format("--history {}: {}", directory, what))};
}

/// Ids are foreign text, so other characters than those of serial numbers and UUIDs become `_`.
std::string file_of(const std::string& directory, const std::string& id) {
  std::string name = id;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && (c != '.' || &c == name.data()) && c != '-') c = '_';
  return directory + "/" + name + extension;
}

/// Whether a line can be judged. Lines of later versions and torn ones cannot.
bool is_history_line(const Json& line) {
  return line.is_object() && value_at<int>(line, "schema").value_or(history_schema + 1) <= history_schema &&
         !text_at(line, "id").empty() && !text_at(line, "run_id").empty();
}

Status read_file(const std::string& directory, const std::string& path, History& history) {
  const Result<std::string> text = read_regular_file(path, largest_history);
  if (!text.ok()) {
    if (text.status().native() == ENOENT) return {};
    return failed(directory, fmt::format("{}: {}", path, text.status().what()));
  }
  std::size_t damaged = 0;
  std::istringstream lines(text.value());
  for (std::string one; std::getline(lines, one);) {
    if (one.empty()) continue;
    Json line = Json::parse(one, nullptr, false);
    if (is_history_line(line))
      history.lines.push_back(std::move(line));
    else
      ++damaged;
  }
  if (damaged > 0)
    history.problems.push_back(
        printable(fmt::format("{}: {} ignored", path, counted(damaged, "damaged line"))));
  return {};
}

/// Appends the line by one write, after a torn last line in a line of its own.
Status append(const std::string& path, const Json& line, Durability durability) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file.valid()) return file_error(path, "cannot be opened", errno);
  struct stat about {};
  char last = '\n';
  if (::fstat(file.get(), &about) == 0 && about.st_size > 0 &&
      ::pread(file.get(), &last, 1, about.st_size - 1) != 1)
    return file_error(path, "cannot be read", errno);
  const int error = write_all(file.get(), (last == '\n' ? "" : "\n") + one_line(line) + "\n");
  if (error != 0) return file_error(path, "cannot be written", error);
  if (durability == Durability::disk && ::fsync(file.get()) != 0)
    return file_error(path, "cannot be written", errno);
  return {};
}

}  // namespace

Status open_history(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return failed(directory, fmt::format("cannot be created: {}", error.message()));
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0)
    return failed(directory, fmt::format("cannot be read and written: {}", std::strerror(errno)));
  return {};
}

Result<History> read_history(const std::string& directory, const std::vector<std::string>& ids) {
  History history;
  for (const std::string& id : ids) EGT_TRY(read_file(directory, file_of(directory, id), history));
  return history;
}

Result<History> read_history(const std::string& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == extension) paths.push_back(entry->path());
  if (error) return failed(directory, fmt::format("cannot be read: {}", error.message()));
  std::sort(paths.begin(), paths.end());
  History history;
  for (const std::string& path : paths) EGT_TRY(read_file(directory, path, history));
  return history;
}

Status append_history(const std::string& directory, const Json& result, Durability durability) {
  Status first;
  for (const Json& line : history_lines(result)) {
    const std::string id = text_at(line, "id");
    const auto known = read_history(directory, {id});
    // Compared as text, since invalid UTF-8 is replaced when the line is written.
    const auto is_there = [&](const Json& other) { return one_line(other) == one_line(line); };
    const bool has_it =
        known.ok() && std::any_of(known.value().lines.begin(), known.value().lines.end(), is_there);
    const Status written = !known.ok() ? known.status()
                           : has_it    ? Status()
                                       : append(file_of(directory, id), line, durability);
    if (first.ok() && !written.ok())
      first = written.what().starts_with("--history") ? written : failed(directory, written.what());
  }
  return first;
}

std::string history_text(const std::vector<GpuHistory>& gpus) {
  std::vector<Row> rows = {
      {"GPU", "Rate", "Runs", "First", "Median", "Last", "Trend per run", "Below its past", "Finding"}};
  std::string findings;
  for (const GpuHistory& gpu : gpus) {
    for (const RateHistory& one : gpu.rates)
      rows.push_back({gpu.id, fmt::format("{} ({})", one.rate->text, one.rate->unit),
                      fmt::format("{} of {}", one.runs, gpu.runs), cell(one.first, "{:.4g}"),
                      cell(one.median, "{:.4g}"), cell(one.last, "{:.4g}"),
                      fmt::format("{:+.2f} %", one.trend_percent),
                      one.decline ? fmt::format("{:.1f} %", -100 * std::expm1(-*one.decline)) : not_measured,
                      !one.decline      ? "too few runs"
                      : one.is_slower() ? "slower"
                                        : "no"});
    if (gpu.rates.empty())
      rows.push_back({gpu.id, not_measured, fmt::format("0 of {}", gpu.runs), not_measured, not_measured,
                      not_measured, not_measured, not_measured, "no comparable run"});
    for (const Finding& finding : gpu.findings)
      findings += printable(fmt::format("{}: {}", gpu.id, finding_text(to_json(finding)))) + "\n";
  }
  return table_text(rows) +
         fmt::format(
             "runs: those like the last one (command, options, GPU, version), which need {} earlier ones; "
             "below its past: without what the other GPUs of a run changed\n",
             min_past_runs) +
         findings;
}

Json history_json(const std::vector<GpuHistory>& gpus) {
  Json all = Json::array();
  for (const GpuHistory& gpu : gpus) {
    Json rates = Json::object(), findings = Json::array();
    for (const RateHistory& one : gpu.rates)
      rates[one.rate->name] = {
          {"runs", one.runs},
          {"first", one.first},
          {"median", one.median},
          {"last", one.last},
          {"trend_percent", one.trend_percent},
          {"below_past_percent", one.decline ? Json(-100 * std::expm1(-*one.decline)) : Json()},
          {"is_slower", one.is_slower()}};
    for (const Finding& finding : gpu.findings) findings.push_back(to_json(finding));
    all.push_back({{"id", gpu.id},
                   {"hostname", member(gpu.last, "hostname")},
                   {"device", member(gpu.last, "device")},
                   {"runs", gpu.runs},
                   {"rates", rates},
                   {"findings", findings}});
  }
  return {{"schema", history_schema}, {"gpus", all}};
}

}  // namespace egt
