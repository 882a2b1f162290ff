#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/ceilings/ceiling_plan.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/options.hpp"

namespace egt {

/// Result of one side in a burst.
struct CeilingBurst {
  double ms = 0;
  std::vector<double> rates;  ///< FLOP, bytes or chain iterations per second, one per row of the trial
};

/// Both sides of a trial, prepared on this rank. One thread; all ranks make the same calls with the same
/// counts. After a failed call, only give_up, the end of the program or destruction may follow.
class CeilingJob {
 public:
  virtual ~CeilingJob() = default;
  /// Runs `count` operations, one after the other, and waits for them.
  virtual Result<CeilingBurst> ours(std::int64_t count) = 0;
  virtual Result<CeilingBurst> limit(std::int64_t count) = 0;
  /// Verifies our side's results after the last burst. Faults have their own records.
  virtual Result<JobReport> check() { return JobReport(); }
  /// Further values for the result.
  virtual Json facts() const { return Json::object(); }
  /// See BenchJob.
  virtual Status give_up(double seconds) = 0;
};

/// A side that consists of work in one stream.
struct StreamSide {
  double units = 0;  ///< FLOP, bytes or chain iterations per operation
  std::function<Status(Stream& stream)> enqueue;
};

/// Times one side's bursts by device events.
class StreamTimer {
 public:
  /// `with_peers`: other ranks take part in the enqueued work. The environment must outlive the timer.
  static Result<StreamTimer> make(Environment& environment, bool with_peers);
  /// Returns milliseconds.
  Result<double> time(std::int64_t count, const std::function<Status(Stream& stream)>& enqueue);
  Stream& stream() { return *stream_; }
  Status give_up(double seconds) { return environment_->device.forget_failure(*stream_, seconds); }

 private:
  explicit StreamTimer(Environment& environment) : environment_(&environment) {}
  Environment* environment_;
  bool with_peers_ = false;
  std::unique_ptr<Event> begin_, end_;
  std::unique_ptr<Stream> stream_;
};

/// A trial whose two sides are work in one stream.
struct StreamTrial {
  StreamSide ours, limit;
  bool with_peers = false;
  /// Mismatches found by our side and then by `last_look`, in device memory, reset before. Null if nothing is
  /// verified.
  Mismatches* found = nullptr;
  std::function<Status(Stream& stream)> last_look = {};  ///< verification after the last burst
  Fault fault = {};                                      ///< template of the fault for wrong words
  VerifiedWork work = {};                                ///< verified by `last_look`
  std::vector<Buffer> memory = {};
  std::shared_ptr<void> keep = {};  ///< other objects that must outlive the stream's work
};
Result<std::unique_ptr<CeilingJob>> make_stream_ceiling(Environment& environment, StreamTrial trial);

/// Context of the jobs; outlives them.
struct CeilingWorld {
  Environment& environment;
  FaultReporter& reporter;
  const TrainOptions& train;
  const FileOptions& file;
  const std::function<bool()>& stopping;
  Communicator* alone;  ///< communicator of this rank only, for steps
  bool is_gpu() const { return environment.device.info().backend != "host"; }
};

/// Create jobs with their memory prepared. out_of_memory, unsupported and disk errors fail the trial only.
Result<std::unique_ptr<CeilingJob>> make_product_ceiling(const CeilingWorld& world,
                                                         const CeilingTrial& trial);
Result<std::unique_ptr<CeilingJob>> make_checked_product_ceiling(const CeilingWorld& world,
                                                                 const CeilingTrial& trial);
Result<std::unique_ptr<CeilingJob>> make_step_ceiling(const CeilingWorld& world, const CeilingTrial& trial);
Result<std::unique_ptr<CeilingJob>> make_memory_ceiling(const CeilingWorld& world, const CeilingTrial& trial);
Result<std::unique_ptr<CeilingJob>> make_patrol_ceiling(const CeilingWorld& world);
Result<std::unique_ptr<CeilingJob>> make_update_ceiling(const CeilingWorld& world);
Result<std::unique_ptr<CeilingJob>> make_extreme_ceiling(const CeilingWorld& world);
Result<std::unique_ptr<CeilingJob>> make_host_copies_ceiling(const CeilingWorld& world);
Result<std::unique_ptr<CeilingJob>> make_sum_ceiling(const CeilingWorld& world, const CeilingTrial& trial);
Result<std::unique_ptr<CeilingJob>> make_file_ceiling(const CeilingWorld& world);
/// Creates the job for the trial's kind.
Result<std::unique_ptr<CeilingJob>> make_ceiling(const CeilingWorld& world, const CeilingTrial& trial);

}  // namespace egt
