#pragma once

#include <string>
#include <vector>

#include "egt/core/file_io.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "judge/history.hpp"

/// The files of `--history DIR`: DIR/ID.jsonl has one line per run of a GPU. Several runs may share DIR:
/// lines are only appended, each by one write.
namespace egt {

struct History {
  std::vector<Json> lines;            ///< of each GPU in the order of its runs
  std::vector<std::string> problems;  ///< one line per file with damaged lines, which are ignored
};

/// Creates the directory if it does not exist. unavailable: it cannot be created, read or written.
Status open_history(const std::string& directory);

/// The lines of these GPUs; those without a file have none. unavailable: a file cannot be read.
Result<History> read_history(const std::string& directory, const std::vector<std::string>& ids);
/// The lines of all GPUs in the directory. unavailable: it or a file of it cannot be read.
Result<History> read_history(const std::string& directory);

/// Appends the lines of a run that its GPUs' files do not have. Later files are written even if one fails.
Status append_history(const std::string& directory, const Json& result, Durability durability);

/// The table of `compare --history`, and a line per finding. Ends with a newline.
std::string history_text(const std::vector<GpuHistory>& gpus);
/// The same as JSON.
Json history_json(const std::vector<GpuHistory>& gpus);

}  // namespace egt
