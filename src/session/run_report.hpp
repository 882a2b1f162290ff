#pragma once

#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "egt/report/sink.hpp"
#include "judge/verdict.hpp"

namespace egt {

/// What a run came to, as its records show it.
struct RunReport {
  Verdict verdict;
  Json result;          ///< the content of result.json
  std::string summary;  ///< for people, above the verdict; empty: nothing
  Status page;          ///< could report.html be written? Not with report_of and judge_directory
};

/// A pure function of all ranks' records, whichever command they are of. `problems`: what could not be read,
/// one line each: reasons for not passing.
RunReport report_of(const std::vector<Record>& records, const std::vector<std::string>& problems = {});

/// The same of the journals in `directory`; changes nothing there. unavailable: there are none; unsupported:
/// they are of a later version of the program. `see` gets each record in turn; null: nobody. Any thread.
Result<RunReport> judge_directory(const std::string& directory, Sink* see = nullptr);

/// And writes result.json there, where it is not the same already, and report.html. Any thread.
Result<RunReport> report_directory(const std::string& directory);

}  // namespace egt
