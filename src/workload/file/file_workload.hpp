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

/// Every so many steps writes files of its own from the device and reads them back, many times, on a thread
/// and a stream of its own (see FilePass). What the disk does wrong while it runs (full, unreadable, gone)
/// ends this part and not the run. The files are removed when they have served, when it fails and when it is
/// destroyed; those that a killed run left in the directory go too (see file_claim.hpp). Faults on purpose
/// are put in by the file layer (see injecting_file_layer.hpp), which is only there where such are planned.
class FileWorkload : public Workload {
 public:
  FileWorkload(Environment& environment, const FileOptions& options,
               std::unique_ptr<FileLayer> layer = make_posix_file_layer());
  ~FileWorkload() override;

  std::string name() const override { return "io"; }
  /// unavailable: no such directory, not writable, or in memory (see refuse_memory); no_space: not one block
  /// beside the disk's reserve.
  Status prepare() override;
  Status start() override;
  /// Asks for a cycle every `every` steps, unless one is under way.
  Status enqueue(const Step& step) override;
  /// Relays what failed on the device's side.
  Status retire(std::int64_t step, StepOutcome& outcome) override;
  void stop_background() override;
  Status finish(const Ending& ending) override;
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
  /// What was planned and not done, whatever was found; empty: nothing.
  std::string undone(const FileFigures& figures) const;

  Environment& environment_;
  const FileOptions options_;
  std::atomic<std::int64_t> step_{-1};  ///< the one that was enqueued last
  const std::unique_ptr<FileLayer> layer_;
  const std::array<std::string, FilePass::files> paths_;
  std::uint64_t bytes_ = 0;         ///< of all files
  std::atomic<bool> made_ = false;  ///< the files may be there
  std::unique_ptr<FilePass> pass_;  ///< none: nothing is planned
  FileSystem file_system_;          ///< of the files
  bool rate_is_measured_ = false;   ///< without other load

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool requested_ = false;  ///< a cycle waits or is under way
  bool closing_ = false;    ///< no more passes but those that `wants_last_pass`
  int last_passes_ = 0;     ///< those begun since
  bool over_ = false;       ///< no more cycles: the budget is used up, or the disk failed
  std::string disk_failure_;
  std::uint64_t cycles_ = 0;  ///< whole ones

  bool finished_ = false;
  bool hurried_ = false;
  WorkerThread thread_{"the file thread"};      ///< last: it uses all of the above
  std::mutex removing_;                         ///< while the one that removes them is started
  WorkerThread remover_{"removing the files"};  ///< a disk may hold it; last: it uses the rest
};

}  // namespace egt
