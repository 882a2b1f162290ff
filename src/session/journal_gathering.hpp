#pragma once

#include <functional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

/// Copies the journals of ranks that do not write into rank 0's run directory. Nodes without a shared file
/// system each have their own directory under the same path. Rank 0 receives the copies at the end of a run;
/// the originals stay. Main thread only.
namespace egt {

/// Returns each rank's run directory as "HOST:PATH", equal to rank 0's text if both share it. Rank 0 creates
/// a temporary marker file to detect this, since paths and hostnames are not unique. Collective.
Result<std::vector<std::string>> find_run_directories(Control& control, const std::string& directory);

/// Returns one line per directory for journals outside `rank`'s directory: "the journals of ranks 2, 3 are in
/// node2:/tmp/run and not here: WHY". `ranks` selects the journals' ranks; empty means all.
std::vector<std::string> report_journals_elsewhere(const std::vector<std::string>& directories, int rank,
                                                   const std::string& why,
                                                   const std::vector<int>& ranks = {});

struct GatheringSetup {
  Control& control;
  std::string directory;
  const std::vector<std::string>& directories;  ///< as returned by find_run_directories
  double answer_seconds = 10;                   ///< timeout for one chunk of up to 1 MiB
  /// Seconds left for the whole transfer. Called repeatedly, since a signal shortens it.
  std::function<double()> total_seconds;
  std::function<void()> begin_request;  ///< reports progress of this thread to the watchdog
};

/// Runs on rank 0 while all other ranks run `offer_journals`. Copies the journals from other directories into
/// its own, under the same names, chunk by chunk. An existing file is replaced only by one that begins with
/// its full content. Returns one printable line with the location per failed copy; empty if all succeeded.
std::vector<std::string> gather_journals(const GatheringSetup& setup);
/// Runs on the other ranks and answers rank 0's requests until it ends them. The journal must not be written
/// meanwhile.
Status offer_journals(const GatheringSetup& setup);

}  // namespace egt
