#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "judge/verdict.hpp"

namespace egt {

/// Outcome of a run according to its records.
struct RunReport {
  Verdict verdict;
  Json result;                        ///< content of result.json
  std::string summary;                ///< text to print above the verdict; may be empty
  std::vector<std::string> warnings;  ///< warnings to print; they do not change the verdict
};

/// A pure function of all ranks' records, for any command. `problems`: one line per unreadable input; each
/// prevents a pass.
RunReport report_of(const std::vector<Record>& records, const std::vector<std::string>& problems = {});

/// Judges the journals in `directory`. Writes result.json and the files derived from it (see
/// write_result_files) if they differ. If records are missing, an earlier result of the same run may be kept
/// and returned. It must be more severe, or have judged journals that are missing now. Returns unavailable if
/// there are no journals, or unsupported if a later program version wrote them. Any thread.
Result<RunReport> report_directory(const std::string& directory);

}  // namespace egt
