#pragma once

#include <string>
#include <vector>

#include "egt/core/status.hpp"

namespace egt {

/// The folder for a run's files.
class RunDirectory {
 public:
  RunDirectory() = default;
  /// Called on rank 0: creates a folder for a new run. An empty `requested` creates a unique one under
  /// extreme_gpu_trainer_runs; its name ends with `run_id` if that is not empty. An error leaves nothing
  /// behind. invalid_argument: it is a file or contains a run; unavailable: not writable.
  static Result<RunDirectory> create(const std::string& requested, const std::string& run_id = {});
  /// Called on other ranks: opens rank 0's folder, or on another node creates one with the same path.
  static Result<RunDirectory> join(const std::string& path);

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Called if the run did not start: removes what `create` or `join` created, if empty.
  void discard();

 private:
  RunDirectory(std::string path, std::vector<std::string> made)
      : path_(std::move(path)), made_(std::move(made)) {}

  std::string path_;
  std::vector<std::string> made_;  // outermost first
};

}  // namespace egt
