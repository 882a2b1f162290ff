#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "judge/verdict.hpp"

namespace egt {

/// What a run came to, as its records show it.
struct RunReport {
  Verdict verdict;
  Json result;                        ///< the content of result.json
  std::string summary;                ///< for people, above the verdict; empty: nothing
  std::vector<std::string> warnings;  ///< for people; they change no verdict
};

/// A pure function of all ranks' records, whichever command they are of. `problems`: what could not be read,
/// one line each: reasons for not passing.
RunReport report_of(const std::vector<Record>& records, const std::vector<std::string>& problems = {});

/// The same of the journals in `directory`, where result.json and what is made of it (see write_result_files)
/// are written if they are not the same already. If records are missing, an earlier result of the same run
/// that is heavier, or that judged journals which are missing now, stays as it is and is what is returned.
/// unavailable: there are none; unsupported: they are of a later version of the program. Any thread.
Result<RunReport> report_directory(const std::string& directory);

}  // namespace egt
