#include "report/journal/run_directory.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr const char* default_parent = "extreme_gpu_trainer_runs";

Status failed(StatusCode code, const std::string& path, const char* what, int error) {
  return {code_of_errno(error, code), fmt::format("{}: {}: {}", path, what, std::strerror(error)), error};
}

void remove_made(const std::vector<std::string>& made) {
  for (auto path = made.rbegin(); path != made.rend(); ++path) ::rmdir(path->c_str());
}

/// mkdir -p; `made` returns the created folders, outermost first. On an error they are removed again.
Status make_folders(const std::string& path, std::vector<std::string>& made) {
  fs::path folder;
  for (const fs::path& part : fs::path(path)) {
    folder /= part;
    if (::mkdir(folder.c_str(), 0777) == 0) {
      made.push_back(folder);
      continue;
    }
    const int error = errno;
    std::error_code ignored;
    if (fs::is_directory(folder, ignored)) continue;
    remove_made(made);
    made.clear();
    if (error == EEXIST || error == ENOTDIR)
      return {StatusCode::invalid_argument,
              fmt::format("--output {}: {} is a file; name a folder", path, folder.string())};
    return failed(StatusCode::unavailable, fmt::format("--output {}", path), "cannot create the directory",
                  error);
  }
  return {};
}

bool holds_a_run(const std::string& path) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    if (name == "result.json" || name.starts_with("journal.rank")) return true;
  }
  return false;
}

Status check_writable(const std::string& path) {
  if (::access(path.c_str(), W_OK | X_OK) == 0) return {};
  return failed(StatusCode::unavailable, fmt::format("--output {}", path),
                "not writable; name another folder", errno);
}

/// Appends increasing numbers to the default path until it is unique.
Result<std::string> make_unique(const std::string& run_id, std::vector<std::string>& made) {
  const std::string base =
      fmt::format("{}/{}{}{}", default_parent, utc_stamp(), run_id.empty() ? "" : "-", run_id);
  for (int attempt = 1; attempt <= 1000; ++attempt) {
    const std::string path = attempt == 1 ? base : fmt::format("{}-{}", base, attempt);
    std::vector<std::string> now;
    EGT_TRY(make_folders(path, now));
    const bool is_new = !now.empty() && fs::path(now.back()) == fs::path(path);
    made.insert(made.end(), now.begin(), now.end());
    if (is_new) return path;
  }
  return Status(StatusCode::unavailable, fmt::format("{}: no new folder can be made; use --output", base));
}

}  // namespace

Result<RunDirectory> RunDirectory::create(const std::string& requested, const std::string& run_id) {
  std::vector<std::string> made;
  std::string path = requested;
  if (path.empty()) {
    EGT_TRY_ASSIGN(path, make_unique(run_id, made));
  } else {
    EGT_TRY(make_folders(path, made));
    if (holds_a_run(path))
      return Status(
          StatusCode::invalid_argument,
          fmt::format(
              "--output {}: holds a run already; name a new directory, or use --resume DIR or report DIR",
              path));
  }
  RunDirectory directory(path, made);
  if (Status writable = check_writable(path); !writable.ok()) {
    directory.discard();
    return writable;
  }
  return directory;
}

Result<RunDirectory> RunDirectory::join(const std::string& path) {
  std::vector<std::string> made;
  EGT_TRY(make_folders(path, made));
  EGT_TRY(check_writable(path));
  return RunDirectory(path, made);
}

void RunDirectory::discard() {
  remove_made(made_);
  made_.clear();
}

}  // namespace egt
