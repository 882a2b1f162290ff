#include "workload/copies/paced_copies.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/standalone_rate.hpp"

namespace egt {
namespace {

constexpr std::uint64_t smallest_chunk = 1u << 16, largest_chunk_on_host = 1u << 20;
constexpr std::uint64_t memory_divisor = 512;  ///< max chunk size as a fraction of device memory
/// Minimal on the host backend, which has the same CPU cores for copies and all other work.
constexpr double pace_on_gpu = 0.15, pace_on_host = 0.001;
constexpr double longest_round_seconds = 0.5;  ///< bound if other processes slowed down the rate measurement
constexpr double width = 1;                    ///< blocks per multiprocessor for the verification
constexpr double stop_seconds = 10;

}  // namespace

PacedCopies::PacedCopies(Environment& environment, Link link)
    : environment_(environment), link_(std::move(link)), thread_("the " + link_.name) {}

Status PacedCopies::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(const MemoryInfo memory, device.memory());
  const bool is_gpu = device.info().backend != "host";
  pace_ = is_gpu ? pace_on_gpu : pace_on_host;
  chunk_bytes_ = std::clamp(std::bit_floor(memory.total_bytes / memory_divisor), smallest_chunk,
                            is_gpu ? link_.largest_chunk : largest_chunk_on_host);
  for (Flight& flight : flights_) {
    EGT_TRY_ASSIGN(flight.in_flight, OperationPipeline::create(device, StreamPriority::background,
                                                               StreamUse::without_products, link_.name));
    flight.in_flight->stream().set_width(width);
  }
  return {};
}

Status PacedCopies::measure_rate(double bytes, const std::function<Status()>& enqueue) {
  EGT_TRY_ASSIGN(rate_, rate_alone(environment_.device, stream(0), bytes, enqueue));
  return {};
}

Status PacedCopies::start() {
  started_ = Clock::now();
  return thread_.start([this](std::stop_token stop) { return run(stop); });
}

Status PacedCopies::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Clock::time_point begin = Clock::now();
    EGT_TRY(copy_round(stop));
    std::unique_lock lock(mutex_);
    const std::chrono::duration<double> rest(round_seconds() - seconds_since(begin));
    woken_.wait_for(lock, stop, rest, [] { return false; });
  }
  return {};
}

/// Time from the start of one round to the next, in seconds.
double PacedCopies::round_seconds() const {
  const auto bytes = static_cast<double>(chunks * OperationPipeline::slots * chunk_bytes_);
  return std::min(bytes / (pace_ * *rate_), longest_round_seconds) / environment_.load.duty();
}

/// Enqueues all copies before waiting for the first, so that copies of different chunks overlap.
Status PacedCopies::copy_round(const std::stop_token& stop) {
  for (std::size_t copy = 0; copy < chunks * OperationPipeline::slots; ++copy) {
    Flight& flight = flights_[copy % chunks];
    EGT_TRY(flight.in_flight->submit(
        [&](Stream& stream, Evidence* on_device) {
          return enqueue(copy % chunks, flight.trips, stream, &on_device->mismatches);
        },
        [this, chunk = copy % chunks, trip = flight.trips](const Evidence& evidence, double) {
          judge(chunk, trip, evidence.mismatches);
          return Status();
        },
        stop));
    ++flight.trips;
    ++enqueued_;
  }
  for (Flight& flight : flights_) EGT_TRY(flight.in_flight->drain(OperationPipeline::deadline_seconds, stop));
  return {};
}

Status PacedCopies::enqueue(std::size_t chunk, std::uint64_t trip, Stream& stream, Mismatches* report) {
  EGT_TRY_ASSIGN(const Brought brought, link_.copy(chunk, trip, stream));
  EGT_TRY(strike(brought.words, chunk, trip, stream));
  return environment_.device.verify_and_fill(brought.words, brought.expected, brought.next,
                                             Direction::ascending, report, stream);
}

/// Applies the due injections.
Status PacedCopies::strike(WordsView words, std::size_t chunk, std::uint64_t trip, Stream& stream) {
  while (const auto due = environment_.injector.take(link_.injection, step_, link_.is_hit)) {
    const Flip flip = choose_flip(*due, words.count, environment_.seed);
    EGT_TRY(environment_.device.flip(words, flip, stream));
    Fault fault;
    link_.locate(fault, chunk, trip, nullptr);
    environment_.injector.report(*due, step_, flip, fault.where);
  }
  return {};
}

void PacedCopies::judge(std::size_t chunk, std::uint64_t trip, const Mismatches& found) {
  ++trips_;
  wrong_words_ += found.count;
  seconds_ = seconds_since(started_);
  if (found.count == 0) return;
  Fault fault = fault_of(environment_, "link", link_.name, link_.name, step_);
  fault.part = link_.part;
  link_.locate(fault, chunk, trip, &found);
  show_mismatches(fault, found);
  environment_.records.emit(fault);
}

Result<bool> PacedCopies::finish(const Shutdown& ending) {
  finished_ = true;
  hurried_ = ending.hurry;
  const Status stopped = thread_.stop(ending.seconds(stop_seconds));
  if (ending.hurry && !stopped.ok()) return false;
  EGT_TRY(stopped);
  EGT_TRY(thread_.failure());
  if (!rate_) return true;
  for (Flight& flight : flights_) {
    const Status drained = flight.in_flight->drain(ending.seconds(OperationPipeline::deadline_seconds));
    if (ending.hurry && drained.code() == StatusCode::timeout) return false;
    EGT_TRY(drained);
  }
  if (!ending.hurry) EGT_TRY(copy_round({}));
  return true;
}

std::string PacedCopies::undone() const {
  if (const Status status = thread_.failure(); !status.ok()) return status.what();
  if (finished_ && !hurried_ && trips_ == 0) return "nothing was copied";
  return {};
}

std::optional<double> PacedCopies::seconds_alone() const {
  return rate_ ? std::optional(static_cast<double>(bytes()) / *rate_) : std::nullopt;
}

void PacedCopies::report(PartReport& report) const {
  const std::uint64_t wrong = wrong_words_;
  report.figures.update({{"planned", rate_.has_value()},
                         {"chunk_bytes", chunk_bytes_},
                         {"copies", trips_.load()},
                         {"bytes_each_way", bytes()},
                         {"gb_per_s_each_way", ratio_or_null(static_cast<double>(bytes()) * 1e-9, seconds_)},
                         {"pace", pace_},
                         {"mismatches", wrong}});
  if (!rate_) return;
  put_outcome(report, wrong ? fmt::format("{} in {}", counted(wrong, "wrong word"), link_.name) : "",
              undone());
  report.work.bytes_exchanged_verified = bytes() - std::min(bytes(), wrong * sizeof(std::uint32_t));
  report.shares = {{.kind = WorkKind::copies,
                    .done = static_cast<double>(enqueued_) * static_cast<double>(chunk_bytes_),
                    .verified = static_cast<double>(bytes())}};
}

}  // namespace egt
