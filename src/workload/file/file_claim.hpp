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

/// Ownership of test files, so that only the files of killed runs are removed.
///
/// The files keep their names while open, instead of being unlinked, because finding them again by name is
/// part of the test. The owner holds a lock (flock) on a file while using it. The system releases the lock
/// when the process ends in any way. The lock is visible across containers and, on most network file systems,
/// across nodes. On the owner's node, an unlocked file is therefore a leftover. On a file system without
/// locks, the process in the name must have exited instead. For a file of another node, whose locks and
/// processes may be invisible, it must also have been untouched for a day.
namespace egt {

/// Content of a test file's name: "extreme_gpu_trainer.rank3.4711.1f0c.0@node7.tmp".
struct TestFileName {
  int rank = 0;
  std::int64_t process = 0;  ///< process id on its node
  std::uint64_t run = 0;     ///< unique to this run
  std::size_t index = 0;     ///< index among the rank's files
  std::string hostname;

  bool operator==(const TestFileName&) const = default;
};
std::string to_text(const TestFileName& name);
/// Name of this process's first file; every call returns a new unique `run`.
TestFileName first_test_file(const RankPlace& place);
/// Paths of `Count` files in `directory`.
template <std::size_t Count>
std::array<std::string, Count> test_file_paths(const std::string& directory, const RankPlace& place) {
  TestFileName name = first_test_file(place);
  std::array<std::string, Count> paths;
  for (; name.index < Count; ++name.index) paths[name.index] = directory + "/" + to_text(name);
  return paths;
}
/// std::nullopt if it is not a test file's name.
std::optional<TestFileName> parse_test_file_name(std::string_view text);

/// Creates an empty file and locks it. Errors: unavailable, no_space.
Result<std::unique_ptr<FileClaim>> claim_file(const std::string& path);

/// Removes the unused test files in `directory`; called on node `hostname`.
Leftovers remove_leftover_files(const std::string& directory, const std::string& hostname);

/// Removes the files of one process of this node even while in use, because the process is about to end.
void remove_test_files_of(std::int64_t process, const std::string& directory, const std::string& hostname);

}  // namespace egt
