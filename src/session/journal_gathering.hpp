#pragma once

#include <functional>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"

/// The journals of ranks that do not write into rank 0's run directory: on hosts without a common file system
/// each host has a directory of its own under the same path. At the end of a run rank 0 gets a copy of them;
/// the originals stay where they are. Main thread only.
namespace egt {

/// By rank: where its run directory is, "HOST:PATH"; the same text as rank 0's where it is rank 0's. That is
/// found out by a file that rank 0 makes there for a moment, since a path and a host's name tell nothing.
/// Collective.
Result<std::vector<std::string>> find_run_directories(Control& control, const std::string& directory);

/// What `rank` has to tell of the journals that are not in its directory, those of `ranks` (empty: of all), a
/// line a directory: "the journals of ranks 2, 3 are in node2:/tmp/run and not here: WHY".
std::vector<std::string> tell_journals_elsewhere(const std::vector<std::string>& directories, int rank,
                                                 const std::string& why, const std::vector<int>& ranks = {});

struct GatheringSetup {
  Control& control;
  std::string directory;
  const std::vector<std::string>& directories;  ///< as found by find_run_directories
  double answer_seconds = 10;                   ///< for one chunk, of 1 MiB at most, to come
  /// How long all of it may take; asked again and again: a signal leaves less.
  std::function<double()> total_seconds;
  std::function<void()> begin_request;  ///< tells those who watch this thread that it goes on
};

/// On rank 0, while all others are in `offer_journals`: writes the journals of the ranks that have another
/// directory beside its own, under the same names, one chunk at a time, and each rank's only when all of it
/// has come. A file that is there already is replaced by one that begins with all that it holds, and by no
/// other. What could not be brought: a line for people, which tells where it is; empty: all was.
std::vector<std::string> gather_journals(const GatheringSetup& setup);
/// On the other ranks: gives rank 0 what it asks for, until it asks no more. The journal must not be written
/// meanwhile.
Status offer_journals(const GatheringSetup& setup);

}  // namespace egt
