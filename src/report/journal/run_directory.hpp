#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// The folder that a run's files go to.
class RunDirectory {
 public:
  RunDirectory() = default;
  /// On rank 0: makes a folder for a new run. `requested` empty: a new one, unlike all others, under
  /// extreme_gpu_trainer_runs, whose name ends with `run_id` if that is not empty. An error
  /// (invalid_argument: it is a file or holds a run; unavailable: not writable) leaves nothing behind.
  static Result<RunDirectory> create(const std::string& requested, const std::string& run_id = {});
  /// On the other ranks: the folder that rank 0 made, or on another host one of the same path.
  static Result<RunDirectory> join(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// The run did not begin: removes what `create` or `join` made, as far as it is empty.
  void discard();

 private:
  RunDirectory(std::string path, std::vector<std::string> made)
      : path_(std::move(path)), made_(std::move(made)) {}

  std::string path_;
  std::vector<std::string> made_;  // outermost first
};

}  // namespace egt
