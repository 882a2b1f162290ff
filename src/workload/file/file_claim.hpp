#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "workload/file/file_layer.hpp"

/// Whose a test file is, so that what a killed run left behind goes, and nothing else.
///
/// The files have names, rather than being unlinked while they are open: to find them again by name is one of
/// the things that are tested. As long as it uses a file its owner holds a lock (flock) on it, which the
/// system takes away with the process, however that ends, and which is seen across containers and, on most
/// network file systems, hosts. So on the owner's host a file whose lock is free is left over. Where the file
/// system knows no locks the process in the name must be gone instead, and from another host, whose locks and
/// processes may be out of sight, the file must not have been touched for a day too.
namespace egt {

/// What the name of a test file tells: "extreme_gpu_trainer.rank3.4711.1f0c.0@node7.tmp".
struct TestFileName {
  int rank = 0;
  std::int64_t process = 0;  ///< its number on its host
  std::uint64_t run = 0;     ///< unlike that of any other run
  std::size_t index = 0;     ///< which of the rank's files
  std::string hostname;

  bool operator==(const TestFileName&) const = default;
};
std::string to_text(const TestFileName& name);
/// Of this process: the first one's, and unlike any other run's at every call.
TestFileName first_test_file(const RankPlace& place);
/// So many, in `directory`.
template <std::size_t Count>
std::array<std::string, Count> test_file_paths(const std::string& directory, const RankPlace& place) {
  TestFileName name = first_test_file(place);
  std::array<std::string, Count> paths;
  for (; name.index < Count; ++name.index) paths[name.index] = directory + "/" + to_text(name);
  return paths;
}
/// None: it is another's file.
std::optional<TestFileName> parse_test_file_name(std::string_view text);

/// Makes the file, empty, and locks it. unavailable, no_space.
Result<std::unique_ptr<FileClaim>> claim_file(const std::string& path);

/// Removes the test files in `directory` that nobody uses any more; called on host `hostname`.
Leftovers remove_leftover_files(const std::string& directory, const std::string& hostname);

/// Removes those of one process of this host, also while it still uses them: it is about to end.
void remove_test_files_of(std::int64_t process, const std::string& directory, const std::string& hostname);

}  // namespace egt
