#include "session/resumed_run.hpp"

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "judge/evidence.hpp"
#include "session/run_report.hpp"

namespace egt {
namespace {

constexpr double min_seconds = 1;

Status refused(const std::string& directory, const std::string& why) {
  return {StatusCode::invalid_argument, fmt::format("--resume {}: {}", directory, why)};
}

/// Returns whether all ranks of this part of the run ended, and none by a stop signal.
bool ended_by_itself(const ByRank& part, int size) {
  int ended = 0;
  for (const auto& [number, rank] : part) {
    if (!rank.end || text_at(rank.end->body, "reason") == "signal") return false;
    ++ended;
  }
  return ended == size;
}

/// Min value over the ranks of this part of the run. Ranks report progress about once per second, so their
/// values differ.
template <typename T>
T least(const ByRank& part, const char* figure) {
  std::optional<T> least;
  for (const auto& [number, rank] : part) {
    const T own = value_at<T>(rank.last_body(), figure).value_or(0);
    least = std::min(least.value_or(own), own);
  }
  return least.value_or(0);
}

std::string value_text(const Json& value) {
  return value.is_null() ? "not set" : value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

Json to_json(const ResumePoint& point) {
  return {{"is_complete", point.is_complete},
          {"verdict", point.verdict},
          {"exit_code", point.exit_code},
          {"command", point.command},
          {"program_version", point.program_version},
          {"arguments", point.arguments},
          {"options", point.options},
          {"size", point.size},
          {"nodes", point.nodes},
          {"run_id", point.run_id},
          {"part", point.part},
          {"steps", point.steps},
          {"seconds", point.seconds}};
}

ResumePoint resume_point_from(const Json& json) {
  ResumePoint point{.is_complete = value_at<bool>(json, "is_complete").value_or(false),
                    .verdict = text_at(json, "verdict"),
                    .exit_code = value_at<int>(json, "exit_code").value_or(0),
                    .command = text_at(json, "command"),
                    .program_version = text_at(json, "program_version"),
                    .arguments = {},
                    .options = member(json, "options"),
                    .size = value_at<int>(json, "size").value_or(0),
                    .nodes = {},
                    .run_id = text_at(json, "run_id"),
                    .part = value_at<int>(json, "part").value_or(0),
                    .steps = value_at<std::int64_t>(json, "steps").value_or(0),
                    .seconds = value_at<double>(json, "seconds").value_or(0)};
  for (const Json& argument : member(json, "arguments"))
    if (argument.is_string()) point.arguments.push_back(argument.get<std::string>());
  for (const Json& node : member(json, "nodes"))
    if (node.is_string()) point.nodes.push_back(node.get<std::string>());
  return point;
}

Result<ResumePoint> resume_point_of(const std::string& directory, const std::vector<Record>& records) {
  const std::vector<ByRank> parts = parts_of(records);
  const Json& start = parts.empty() ? Json() : first_start(parts.front());
  if (start.is_null()) return refused(directory, "it was cut before it began; start a new run");
  ResumePoint point = resume_point_from(start);
  const RunReport report = report_of(records);
  const Json result = Json::parse(std::ifstream(directory + "/result.json"), nullptr, false);
  if (text_at(result, "verdict") == "fault" && report.verdict.name != "fault" &&
      text_at(result, "run_id") == point.run_id)
    return refused(directory,
                   "its result.json has the verdict fault, which the journals do not show, since "
                   "records are missing; start a new run");
  point.verdict = report.verdict.name;
  point.exit_code = report.verdict.exit_code;
  point.is_complete = ended_by_itself(parts.back(), point.size);
  const Json& newest = first_start(parts.back());
  point.part = value_at<int>(newest, "part").value_or(0) + 1;
  for (int number = 0; number < point.size; ++number) {
    const auto rank = parts.front().find(number);
    const Json& own = rank == parts.front().end() ? Json() : member(rank->second.start_body(), "identity");
    const std::string node = text_at(own, "slurm_node");
    point.nodes.push_back(node.empty() ? text_at(own, "hostname") : node);
  }
  for (const ByRank& part : parts) {
    point.steps += least<std::int64_t>(part, "steps");
    point.seconds += least<double>(part, "elapsed_seconds");
  }
  return point;
}

Status check_resume(const std::string& directory, const ResumePoint& point, int ranks,
                    const std::string& program_version) {
  if (point.command != "burn")
    return refused(directory, fmt::format("holds a {}; only a burn can go on", point.command));
  if (point.size != ranks)
    return refused(directory, fmt::format("that run has {0} ranks, not {1}; use mpirun --quiet -np {0}",
                                          point.size, ranks));
  if (point.program_version != program_version)
    return refused(directory, fmt::format("that run was begun by version {}, this is {}; use that one",
                                          point.program_version, program_version));
  return {};
}

Status check_same_node(const std::string& directory, const ResumePoint& point, int rank,
                       const std::string& node) {
  const auto own = static_cast<std::size_t>(rank);
  if (own >= point.nodes.size() || point.nodes[own].empty() || point.nodes[own] == node) return {};
  return refused(directory, fmt::format("rank {} ran on {}, not on {}; go on there, or start a new run", rank,
                                        printable(point.nodes[own]), printable(node)));
}

Status check_same_options(const std::string& directory, const Json& before, const Json& now) {
  for (const auto& [name, value] : now.items())
    if (member(before, name) != value)
      return refused(directory, fmt::format("--{} is {} there and {} here; leave it out, and it is the same",
                                            name, value_text(member(before, name)), value_text(value)));
  return {};
}

std::optional<double> seconds_left(std::optional<double> planned, const ResumePoint& point) {
  if (planned) *planned = std::max(*planned - point.seconds, min_seconds);
  return planned;
}

std::optional<std::int64_t> steps_left(std::optional<std::int64_t> planned, const ResumePoint& point) {
  if (planned) *planned = std::max(*planned - point.steps, std::int64_t{1});
  return planned;
}

}  // namespace egt
