#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "egt/core/histogram.hpp"
#include "workload/bench/bench_job.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/value_exchange.hpp"
#include "workload/train/slow_injection.hpp"

namespace egt {
namespace {

constexpr int copy_chunks = 5;

/// Limits how far the host enqueues ahead: far enough to keep the device busy, but short for a quick stop.
class SubmissionWindow {
 public:
  static constexpr std::int64_t iterations = 16;  ///< iterations between two marks (events)
  static constexpr std::size_t marks = 4;

  Status prepare(Device& device) {
    for (auto& mark : marks_) {
      EGT_TRY_ASSIGN(mark, device.create_event(EventUse::order));
    }
    return {};
  }
  /// The event that must complete before iteration `number` is enqueued, and that is then recorded again.
  /// null: no wait.
  Event* due(std::int64_t number) {
    if (number % iterations != 0) return nullptr;
    return marks_[static_cast<std::size_t>(number / iterations) % marks].get();
  }

 private:
  std::array<std::unique_ptr<Event>, marks> marks_;
};

class StreamJob final : public BenchJob {
 public:
  StreamJob(Environment& environment, std::unique_ptr<BenchOperation> operation,
            std::unique_ptr<InputPipeline> feed, const FeedShape& shape, double slow)
      : environment_(environment),
        device_(environment.device),
        shape_(shape),
        slow_(slow),
        line_(environment.board.line("main")),
        operation_(std::move(operation)),
        outputs_(operation_->outputs()),
        feed_(std::move(feed)) {}

  Status prepare();

  Result<Answers> answers() override;
  std::int64_t multiple() const override { return shape_.per_delivery; }
  Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) override;
  Result<JobReport> check() override;
  Status give_up(double seconds) override;

 private:
  Status make(std::int64_t iterations, std::int64_t per_chunk);
  Status work(std::int64_t iteration);
  /// Reports waits as waits for peers, because a device that waits for a peer's batches looks stuck.
  void report_progress();
  Status wait(const Event& event, const char* what);
  /// Waits for the window's mark before iteration `number`, and records it again.
  Status keep_pace(std::int64_t number, const char* what);
  Result<Answers> digests_of_outputs();
  /// Waits for the first `count` of `digests_` and returns them.
  Result<Answers> read_digests(std::size_t count, const char* what);
  Status check_last_output();
  Result<bool> is_input_right();
  Result<double> copy_ms();
  /// Allocates temporary memory, which is kept if a wait for work in it failed.
  Result<std::byte*> borrow(std::size_t bytes);

  Environment& environment_;
  Device& device_;
  const FeedShape shape_;
  const double slow_;  ///< percent of extra work
  ProgressBoard::Line& line_;
  double owed_ = 0;  ///< pending extra work, in operations
  std::int64_t next_ = 0, per_chunk_ = 1;
  Answers known_;  ///< digests of the outputs, generation by generation
  JobReport report_;
  std::unique_ptr<BenchOperation> operation_;
  const std::vector<BenchOperation::Output> outputs_;
  Buffer digests_, pinned_;
  std::vector<Buffer> borrowed_;
  std::vector<std::unique_ptr<Event>> chunk_ends_;
  std::unique_ptr<Event> done_, moved_;
  SubmissionWindow window_;
  // Declared last: streams are destroyed before the memory that their work uses.
  std::unique_ptr<InputPipeline> feed_;
  std::unique_ptr<Stream> compute_;
};

Status StreamJob::prepare() {
  const std::size_t bytes = outputs_.size() * sizeof(Digest);
  EGT_TRY_ASSIGN(digests_, device_.allocate(bytes));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(bytes));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  EGT_TRY_ASSIGN(moved_, device_.create_event(EventUse::order));
  EGT_TRY(window_.prepare(device_));
  EGT_TRY_ASSIGN(compute_, device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  return {};
}

void StreamJob::report_progress() {
  line_.go_on("bench: batches");
  if (feed_->stream() != nullptr) line_.wait_for_peers("bench: batches");
}

Status StreamJob::wait(const Event& event, const char* what) {
  return wait_with_peers(device_, environment_.communicator, event, environment_.peer_timeout_seconds, what);
}

/// Inputs are written to this device's own memory, so that no transfer affects the answers.
Result<Answers> StreamJob::answers() {
  known_.clear();
  EGT_TRY_ASSIGN(std::byte* const input, borrow(shape_.stride));
  for (int generation = 0; generation < BenchOperation::generations; ++generation) {
    EGT_TRY(operation_->make_input(generation, input, *compute_));
    EGT_TRY(operation_->enqueue(generation, input, *compute_));
    EGT_TRY_ASSIGN(const Answers outputs, digests_of_outputs());
    known_.insert(known_.end(), outputs.begin(), outputs.end());
  }
  borrowed_.clear();
  return known_;
}

Result<std::byte*> StreamJob::borrow(std::size_t bytes) {
  EGT_TRY_ASSIGN(Buffer memory, device_.allocate(bytes));
  borrowed_.push_back(std::move(memory));
  return borrowed_.back().as<std::byte>();
}

/// Digests of the last enqueued batch's outputs. Blocks until done.
Result<Answers> StreamJob::digests_of_outputs() {
  Digest* digest = digests_.as<Digest>();
  for (const auto& [name, memory] : outputs_) EGT_TRY(device_.digest(memory->words(), digest++, *compute_));
  return read_digests(outputs_.size(), "the digests of a batch");
}

Result<Answers> StreamJob::read_digests(std::size_t count, const char* what) {
  EGT_TRY(device_.copy(pinned_.data(), digests_.data(), count * sizeof(Digest), *compute_));
  EGT_TRY(device_.record(*done_, *compute_));
  EGT_TRY(wait(*done_, what));
  const Digest* const digests = pinned_.as<Digest>();
  return Answers(digests, digests + count);
}

/// The first delivery is not timed, because it only fills the slots.
Result<BurstTimes> StreamJob::burst(int chunks, std::int64_t per_chunk) {
  const std::int64_t iterations = multiple() + chunks * per_chunk;
  per_chunk_ = per_chunk;
  while (chunk_ends_.size() < static_cast<std::size_t>(chunks) + 1) {
    EGT_TRY_ASSIGN(auto event, device_.create_event(EventUse::timing));
    chunk_ends_.push_back(std::move(event));
  }
  EGT_TRY(make(iterations, per_chunk));
  report_progress();
  EGT_TRY(wait(*chunk_ends_[static_cast<std::size_t>(chunks)], "the batches of a measurement"));
  if (feed_->stream() != nullptr) {
    EGT_TRY(device_.record(*moved_, *feed_->stream()));
    EGT_TRY(wait(*moved_, "the last batches' arrival"));
  }
  BurstTimes times;
  for (std::size_t c = 0; c < static_cast<std::size_t>(chunks); ++c) {
    EGT_TRY_ASSIGN(times.chunk_ms.emplace_back(), device_.elapsed_ms(*chunk_ends_[c], *chunk_ends_[c + 1]));
  }
  EGT_TRY_ASSIGN(times.busy_ms,
                 device_.busy_ms(*chunk_ends_[0], *chunk_ends_[static_cast<std::size_t>(chunks)]));
  EGT_TRY(check_last_output());
  return times;
}

/// Enqueues the next delivery before the work on the current one.
Status StreamJob::make(std::int64_t iterations, std::int64_t per_chunk) {
  const std::int64_t first = next_, end = first + iterations, per_delivery = shape_.per_delivery;
  const std::int64_t deliveries = end / per_delivery;
  std::size_t chunk = 0;
  EGT_TRY(feed_->deliver(first / per_delivery));
  for (; next_ < end; ++next_) {
    const std::int64_t delivery = next_ / per_delivery, made = next_ - first;
    EGT_TRY(keep_pace(next_, "the device"));
    if (next_ % per_delivery == 0) {
      if (delivery + 1 < deliveries) EGT_TRY(feed_->deliver(delivery + 1));
      EGT_TRY(feed_->ready(delivery, *compute_));
    }
    if (made >= per_delivery && (made - per_delivery) % per_chunk == 0)
      EGT_TRY(device_.record(*chunk_ends_[chunk++], *compute_));
    EGT_TRY(work(next_));
    if ((next_ + 1) % per_delivery == 0) EGT_TRY(feed_->release(delivery, *compute_));
  }
  return device_.record(*chunk_ends_[chunk], *compute_);
}

Status StreamJob::keep_pace(std::int64_t number, const char* what) {
  Event* const mark = window_.due(number);
  if (mark == nullptr) return {};
  report_progress();
  EGT_TRY(wait(*mark, what));
  return device_.record(*mark, *compute_);
}

Status StreamJob::work(std::int64_t iteration) {
  const int generation = shape_.generation(iteration);
  EGT_TRY(operation_->enqueue(generation, feed_->input(iteration), *compute_));
  for (owed_ += slow_ / 100; owed_ >= 1; owed_ -= 1)
    EGT_TRY(operation_->enqueue(generation, feed_->input(iteration), *compute_));
  return {};
}

Status StreamJob::check_last_output() {
  const auto first = static_cast<std::size_t>(shape_.generation(next_ - 1)) * outputs_.size();
  EGT_TRY_ASSIGN(const Answers made, digests_of_outputs());
  report_.work.outputs_verified += outputs_.size();
  for (std::size_t output = 0; output < outputs_.size(); ++output) {
    const Digest &expected = known_[first + output], &actual = made[output];
    if (made[output] == expected) continue;
    EGT_TRY_ASSIGN(const bool input_right, is_input_right());
    Fault fault = fault_of(environment_, "output", "known answer of a batch", "bench", -1);
    fault.where = fmt::format("{} of batch {}{}", outputs_[output].name, next_ - 1,
                              input_right ? "" : ", whose input was wrong when it came from rank 0");
    show_difference(fault, expected, actual);
    if (!input_right) {
      fault.blame = Blame::ambiguous;
      fault.suspects = {0, environment_.place.rank};
    }
    if (report_.failure.empty()) environment_.records.emit(fault);  // one fault per trial is enough
    report_.failure = fmt::format("rank {}: {}", environment_.place.rank, fault.where);
    break;
  }
  return {};
}

/// Whether the last batch's input is still correct in its destination memory.
Result<bool> StreamJob::is_input_right() {
  if (!feed_->is_moved()) return true;
  const std::size_t bytes = shape_.bytes[static_cast<std::size_t>(shape_.index)];
  EGT_TRY_ASSIGN(std::byte* const expected, borrow(shape_.stride));
  EGT_TRY(operation_->make_input(shape_.generation(next_ - 1), expected, *compute_));
  Answers digests;
  for (const std::byte* const input : {static_cast<const std::byte*>(expected), feed_->input(next_ - 1)}) {
    auto* const words = reinterpret_cast<std::uint32_t*>(const_cast<std::byte*>(input));
    EGT_TRY(device_.digest({words, bytes / sizeof(std::uint32_t)}, digests_.as<Digest>(), *compute_));
    EGT_TRY_ASSIGN(const Answers one, read_digests(1, "the digest of an input"));
    digests.push_back(one.front());
  }
  borrowed_.clear();
  return digests[0] == digests[1];
}

Result<JobReport> StreamJob::check() {
  if (shape_.devices == 1) {
    const auto ms = copy_ms();
    if (ms.ok())
      report_.figures.copy_ms = ms.value();
    else if (ms.status().code() != StatusCode::out_of_memory)
      return ms.status();
  }
  return std::exchange(report_, {});
}

/// Times copies in the same way as the operation: as many calls, back to back, from as many source buffers.
Result<double> StreamJob::copy_ms() {
  const std::size_t bytes = aligned_input(operation_->necessary_bytes() / 2);
  EGT_TRY_ASSIGN(std::byte* const data, borrow((BenchOperation::generations + 1) * bytes));
  EGT_TRY(device_.set_zero(data, (BenchOperation::generations + 1) * bytes, *compute_));
  std::vector<double> ms;
  std::int64_t number = 0;
  for (int chunk = 0; chunk < copy_chunks; ++chunk) {
    EGT_TRY(device_.record(*chunk_ends_[0], *compute_));
    for (std::int64_t i = 0; i < per_chunk_; ++i, ++number) {
      EGT_TRY(keep_pace(number, "copies"));
      EGT_TRY(device_.copy(data,
                           data + static_cast<std::size_t>(1 + number % BenchOperation::generations) * bytes,
                           bytes, *compute_));
    }
    EGT_TRY(device_.record(*chunk_ends_[1], *compute_));
    EGT_TRY(wait(*chunk_ends_[1], "copies"));
    EGT_TRY_ASSIGN(const double chunk_ms, device_.elapsed_ms(*chunk_ends_[0], *chunk_ends_[1]));
    ms.push_back(chunk_ms / static_cast<double>(per_chunk_));
  }
  borrowed_.clear();
  return median_of(ms);
}

Status StreamJob::give_up(double seconds) {
  EGT_TRY(device_.forget_failure(*compute_, seconds));
  return feed_->stream() != nullptr ? device_.forget_failure(*feed_->stream(), seconds) : Status();
}

}  // namespace

double slow_percent(const std::optional<Injection>& slow) {
  return slow ? SlowInjection::percent_of(*slow) : 0;
}

Result<std::unique_ptr<BenchJob>> make_stream_job(Environment& environment,
                                                  std::unique_ptr<BenchOperation> operation,
                                                  std::unique_ptr<InputPipeline> feed, const FeedShape& shape,
                                                  const std::optional<Injection>& slow) {
  auto job = std::make_unique<StreamJob>(environment, std::move(operation), std::move(feed), shape,
                                         slow_percent(slow));
  EGT_TRY(job->prepare());
  return std::unique_ptr<BenchJob>(std::move(job));
}

}  // namespace egt
