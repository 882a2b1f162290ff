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

/// What a side did in a burst.
struct CeilingBurst {
  double ms = 0;
  std::vector<double> rates;  ///< FLOP, bytes or turns a second, one a row of the trial
};

/// Both sides of a trial, ready on this rank. One thread; all ranks make the same calls with the same counts.
/// Where a call fails, give_up follows, or the end of the program, or it is not used any more.
class CeilingJob {
 public:
  virtual ~CeilingJob() = default;
  /// `count` operations, one behind the other; waits for them.
  virtual Result<CeilingBurst> ours(std::int64_t count) = 0;
  virtual Result<CeilingBurst> limit(std::int64_t count) = 0;
  /// After the last burst: is what ours made right? A fault was told by its own record.
  virtual Result<JobReport> check() { return JobReport(); }
  /// What else the result tells of it.
  virtual Json facts() const { return Json::object(); }
  /// See BenchJob.
  virtual Status give_up(double seconds) = 0;
};

/// A side that is work in one stream.
struct StreamSide {
  double units = 0;  ///< FLOP, bytes or turns of one operation
  std::function<Status(Stream& stream)> enqueue;
};

/// One side's bursts, timed by events of the device.
class StreamTimer {
 public:
  /// `with_peers`: other ranks take part in what is enqueued. The environment outlives it.
  static Result<StreamTimer> make(Environment& environment, bool with_peers);
  /// Milliseconds.
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

/// Both sides are work in one stream.
struct StreamTrial {
  StreamSide ours, limit;
  bool with_peers = false;
  /// In the device's memory, reset: what ours, and then `last_look`, found that is not as expected; null:
  /// nothing is verified.
  Mismatches* found = nullptr;
  std::function<Status(Stream& stream)> last_look = {};  ///< after the last burst
  Fault fault = {};                                      ///< what those words are told as
  VerifiedWork work = {};                                ///< once they are looked at
  std::vector<Buffer> memory = {};
  std::shared_ptr<void> keep = {};  ///< what else must outlive the stream's work
};
Result<std::unique_ptr<CeilingJob>> make_stream_ceiling(Environment& environment, StreamTrial trial);

/// What the jobs stand in; outlives them.
struct CeilingWorld {
  Environment& environment;
  FaultReporter& reporter;
  const TrainOptions& train;
  const FileOptions& file;
  const std::function<bool()>& stopping;
  Communicator* alone;  ///< this rank's own; of steps
  bool is_gpu() const { return environment.device.info().backend != "host"; }
};

/// Take memory and make it ready; out_of_memory, unsupported and what a disk says concern the trial only.
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
/// By its kind.
Result<std::unique_ptr<CeilingJob>> make_ceiling(const CeilingWorld& world, const CeilingTrial& trial);

}  // namespace egt
