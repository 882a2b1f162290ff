#pragma once

#include <string>
#include <vector>

#include "egt/core/file_io.hpp"
#include "egt/core/record.hpp"
#include "report/html/time_lines.hpp"

namespace egt {

/// A file of a run's directory that is made of its result and of its records over time: `report` can make it
/// at any time.
struct ResultFile {
  const char* name;
  std::string (*text)(const Json& result, const TimeLines& lines);
};
const std::vector<ResultFile>& result_files();

/// Writes them into `directory`, where they are not the same already; readers see an old file or a whole one.
/// They are no evidence, so what goes wrong here changes no verdict: the answer is a line for each that
/// cannot be written, which is then gone, as far as that can be done, rather than one of another result. Any
/// thread.
std::vector<std::string> write_result_files(const std::string& directory, const Json& result,
                                            const TimeLines& lines, Durability durability = Durability::disk);

/// The list of hosts that --nodes-file asks for; nothing where `path` is empty. Errors are one line.
Status write_node_list(const std::string& path, const Json& result);

}  // namespace egt
