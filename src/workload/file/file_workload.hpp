#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "egt/workload/workload.hpp"
#include "workload/common/worker_thread.hpp"
#include "workload/file/file_layer.hpp"
#include "workload/file/file_pass.hpp"
#include "workload/options.hpp"

namespace egt {

/// At regular steps, writes files from the device and reads them back repeatedly, on its own thread and
/// stream (see FilePass). A disk failure during the run (full, unreadable, removed) ends this part but not
/// the run. The files are removed after use, after a failure and by the destructor. Leftovers of killed runs
/// in the directory are removed too (see file_claim.hpp). A file layer injects faults (see
/// injecting_file_layer.hpp); it is present only if such faults are planned.
class FileWorkload : public Workload {
 public:
  FileWorkload(Environment& environment, const FileOptions& options,
               std::unique_ptr<FileLayer> layer = make_posix_file_layer());
  ~FileWorkload() override;

  std::string name() const override { return "io"; }
  /// unavailable: no such directory, not writable, or in memory (see refuse_memory); no_space: less than one
  /// block above the disk's reserve.
  Status prepare() override;
  Status start() override;
  /// Requests a cycle every `every` steps, unless one is in progress.
  Status enqueue(const Step& step) override;
  /// Returns failures of the device.
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  void stop_background() override;
  Status finish(const Shutdown& ending) override;
  PartReport report() const override;

  const std::array<std::string, FilePass::files>& paths() const { return paths_; }

 private:
  Result<std::uint64_t> file_bytes();
  Status find_file_system();
  Status measure_rate();
  Status start_thread();
  Status work(const std::stop_token& stop);
  bool await_request(const std::stop_token& stop);
  Status cycle(const std::stop_token& stop);
  bool wants_pass(int passes_of_cycle);
  bool within_budget();
  Status pass(const std::stop_token& stop);
  void end_by_failure(const Status& status);
  void close(double first_pass_seconds, double pass_seconds);
  bool wants_last_pass() const;
  bool suffers_injections() const;
  void remove_files();
  Status remove_files_within(double seconds);
  Status explain(const Status& stopped);
  void remove_leftovers();
  std::string with_free_space(const Status& status);
  /// Planned work that was not done, regardless of faults found; empty: none.
  std::string undone(const FileFigures& figures) const;

  Environment& environment_;
  const FileOptions options_;
  std::atomic<std::int64_t> step_{-1};  ///< last enqueued step
  const std::unique_ptr<FileLayer> layer_;
  const std::array<std::string, FilePass::files> paths_;
  std::uint64_t bytes_ = 0;         ///< of all files together
  std::atomic<bool> made_ = false;  ///< the files may exist
  std::unique_ptr<FilePass> pass_;  ///< null: nothing is planned
  FileSystem file_system_;          ///< file system of the files
  bool rate_is_measured_ = false;   ///< standalone rate was measured

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool requested_ = false;  ///< a cycle is requested or in progress
  bool closing_ = false;    ///< only passes required by `wants_last_pass` still start
  int last_passes_ = 0;     ///< started since closing
  bool over_ = false;       ///< no more cycles: budget exhausted or disk failed
  std::string disk_failure_;
  std::uint64_t cycles_ = 0;  ///< complete cycles

  bool finished_ = false;
  bool hurried_ = false;
  WorkerThread thread_{"the file thread"};      ///< last: it uses all of the above
  std::mutex removing_;                         ///< held while the remover starts
  WorkerThread remover_{"removing the files"};  ///< the disk may block it; last: it uses the other members
};

}  // namespace egt
