#include "report/export/result_files.hpp"

#include <unistd.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "judge/node_verdicts.hpp"
#include "report/html/page.hpp"

namespace egt {
namespace {

/// Whether the file contains `text`. Reads regular files only, since opening a pipe could block forever.
bool holds(const std::string& path, const std::string& text) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ostringstream there;
  there << std::ifstream(path, std::ios::binary).rdbuf();
  return there.str() == text;
}

Status write(const std::string& path, const ResultFile& file, const Json& result, const TimeLines& lines,
             Durability durability) {
  try {
    const std::string text = file.text(result, lines);
    return holds(path, text) ? Status() : write_atomically(path, text, durability);
  } catch (const std::exception& error) {
    return {StatusCode::internal, fmt::format("{}: cannot be made: {}", path, error.what())};
  }
}

}  // namespace

const std::vector<ResultFile>& result_files() {
  static const std::vector<ResultFile> files = {
      {"junit.xml", [](const Json& result, const TimeLines&) { return junit_xml(result); }},
      {"metrics.prom", [](const Json& result, const TimeLines&) { return prometheus_text(result); }},
      {"report.html", page_text},
  };
  return files;
}

std::vector<std::string> write_result_files(const std::string& directory, const Json& result,
                                            const TimeLines& lines, Durability durability) {
  std::vector<std::string> problems;
  for (const ResultFile& file : result_files()) {
    const std::string path = directory + "/" + file.name;
    const Status written = write(path, file, result, lines, durability);
    if (written.ok()) continue;
    ::unlink(path.c_str());
    problems.push_back(written.what());
  }
  return problems;
}

std::vector<std::string> write_requested_files(const RequestedFiles& files, const Json& result) {
  std::vector<std::string> problems;
  const auto write = [&](const char* option, const std::string& path, const auto& text) {
    if (path.empty()) return;
    if (const Status written = write_atomically(path, text(result), Durability::system); !written.ok())
      problems.push_back(fmt::format("--{}: {}", option, written.what()));
  };
  write("nodes-file", files.nodes, [](const Json& all) { return node_list_text(member(all, "nodes")); });
  write("ocp", files.ocp, ocp_text);
  return problems;
}

}  // namespace egt
