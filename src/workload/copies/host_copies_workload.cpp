#include "workload/copies/host_copies_workload.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include <fmt/format.h>

#include "workload/common/alone_rate.hpp"
#include "workload/common/findings.hpp"
#include "workload/links/link_host_copies.hpp"

namespace egt {
namespace {

constexpr std::uint64_t mebibyte = 1u << 20, smallest_chunk = 1u << 16;
constexpr std::uint64_t memory_divisor = 2048;  ///< a chunk is at most this part of the device's memory
/// Of the rate alone, each way. On the host, whose cores do the copies and all else, only so that the same
/// code runs.
constexpr double pace_on_gpu = 0.15, pace_on_host = 0.001;
constexpr double width = 1;  ///< of verifying, blocks a multiprocessor
constexpr double stop_seconds = 10, hurried_stop_seconds = 0.2;

}  // namespace

WordsView HostCopiesWorkload::Chunk::words(std::uint64_t trip) const {
  const Buffer& buffer = device[trip % device.size()];
  return {buffer.as<std::uint32_t>(), buffer.bytes() / sizeof(std::uint32_t)};
}

Status HostCopiesWorkload::prepare() {
  EGT_TRY_ASSIGN(const MemoryInfo memory, environment_.device.memory());
  const bool is_gpu = environment_.device.info().backend != "host";
  pace_ = is_gpu ? pace_on_gpu : pace_on_host;
  chunk_bytes_ = std::clamp(std::bit_floor(memory.total_bytes / memory_divisor), smallest_chunk,
                            (is_gpu ? 64 : 1) * mebibyte);
  for (Chunk& chunk : chunks_) EGT_TRY(prepare(chunk));
  EGT_TRY_ASSIGN(rate_, measure_rate(chunks_.front()));
  return {};
}

Status HostCopiesWorkload::prepare(Chunk& chunk) {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(chunk.host, device.allocate_pinned(chunk_bytes_));
  for (Buffer& buffer : chunk.device) {
    EGT_TRY_ASSIGN(buffer, device.allocate(chunk_bytes_));
  }
  EGT_TRY_ASSIGN(chunk.in_flight, OperationPipeline::create(device, StreamPriority::background,
                                                            StreamUse::without_products, "a host copy"));
  chunk.in_flight->stream().set_width(width);
  for (const std::uint64_t trip : {0, 1})
    EGT_TRY(device.fill(chunk.words(trip), pattern(chunk, trip), chunk.in_flight->stream()));
  return {};
}

/// There and back, so the mean of both ways. The content stays, and what the host then has is not what the
/// first trip brings.
Result<double> HostCopiesWorkload::measure_rate(Chunk& chunk) const {
  Device& device = environment_.device;
  Stream& stream = chunk.in_flight->stream();
  return rate_alone(device, stream, 2 * static_cast<double>(chunk_bytes_), [&]() -> Status {
    EGT_TRY(device.copy(chunk.host.data(), chunk.words(1).data, chunk_bytes_, stream));
    return device.copy(chunk.words(1).data, chunk.host.data(), chunk_bytes_, stream);
  });
}

Pattern HostCopiesWorkload::pattern(const Chunk& chunk, std::uint64_t trip) const {
  const auto index = static_cast<std::uint64_t>(&chunk - chunks_.data());
  return {.kind = PatternKind::random,
          .seed = pattern_seed(environment_, PatternPurpose::host_copy, index, trip)};
}

Status HostCopiesWorkload::start() {
  started_ = Clock::now();
  return thread_.start([this](std::stop_token stop) { return run(stop); });
}

Status HostCopiesWorkload::enqueue(const Step& step) {
  step_ = step.index;
  return {};
}

Status HostCopiesWorkload::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Clock::time_point begin = Clock::now();
    EGT_TRY(copy_round(stop));
    rest(round_seconds() - seconds_since(begin), stop);
  }
  return {};
}

void HostCopiesWorkload::rest(double seconds, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  woken_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
}

/// From one round's start to the next.
double HostCopiesWorkload::round_seconds() const {
  const auto trips = static_cast<double>(chunks_.size() * OperationPipeline::slots);
  return trips * static_cast<double>(chunk_bytes_) / (pace_ * *rate_ * environment_.load.duty());
}

/// All trips are enqueued before the first is waited for, so that some go while others come.
Status HostCopiesWorkload::copy_round(const std::stop_token& stop) {
  for (std::size_t trip = 0; trip < OperationPipeline::slots; ++trip)
    for (Chunk& chunk : chunks_) EGT_TRY(make_trip(chunk, stop));
  for (Chunk& chunk : chunks_) EGT_TRY(chunk.in_flight->drain(OperationPipeline::deadline_seconds, stop));
  return {};
}

/// Both places on the device hold other patterns: that of the trip's start is the last one, that of its end
/// the one before.
Status HostCopiesWorkload::make_trip(Chunk& chunk, const std::stop_token& stop) {
  Device& device = environment_.device;
  const WordsView from = chunk.words(chunk.trips), to = chunk.words(chunk.trips + 1);
  const Pattern sent = pattern(chunk, chunk.trips), next = pattern(chunk, chunk.trips + 1);
  EGT_TRY(chunk.in_flight->submit(
      [&](Stream& stream, Evidence* on_device) -> Status {
        EGT_TRY(device.copy(chunk.host.data(), from.data, chunk_bytes_, stream));
        EGT_TRY(device.copy(to.data, chunk.host.data(), chunk_bytes_, stream));
        EGT_TRY(strike(to, stream));
        return device.verify_and_fill(to, sent, next, Direction::ascending, &on_device->mismatches, stream);
      },
      [this](const Evidence& evidence, double) {
        judge(evidence.mismatches);
        return Status();
      },
      stop));
  ++chunk.trips;
  return {};
}

/// Puts into what came back the faults on purpose that are due.
Status HostCopiesWorkload::strike(WordsView words, Stream& stream) {
  while (const auto due = environment_.injector.take(InjectionKind::host_copy, step_)) {
    const Flip flip = choose_flip(*due, words.count, environment_.seed);
    EGT_TRY(environment_.device.flip(words, flip, stream));
    environment_.injector.tell(*due, step_, flip, place_of_host_copy(due->rank, chunk_bytes_));
  }
  return {};
}

void HostCopiesWorkload::judge(const Mismatches& found) {
  ++trips_;
  wrong_words_ += found.count;
  seconds_ = seconds_since(started_);
  if (found.count == 0) return;
  const Mismatches::Sample sample = lowest_sample(found);
  Fault fault = fault_of(environment_, "link", "host copies", name(), step_);
  fault.where = place_of_host_copy(environment_.place.rank, chunk_bytes_);
  fault.offset = sample.index * sizeof(std::uint32_t);
  show_difference(fault, sample.expected, sample.actual);
  fault.count = found.count;
  environment_.records.emit(fault);
}

Status HostCopiesWorkload::finish(bool hurry) {
  finished_ = true;
  hurried_ = hurry;
  const Status stopped = thread_.stop(hurry ? hurried_stop_seconds : stop_seconds);
  if (hurry && !stopped.ok()) return {};  // the thread still has the chunks
  EGT_TRY(stopped);
  EGT_TRY(thread_.failure());
  if (!rate_) return {};
  for (Chunk& chunk : chunks_) {
    const Status drained =
        chunk.in_flight->drain(hurry ? hurried_stop_seconds : OperationPipeline::deadline_seconds);
    if (hurry && drained.code() == StatusCode::timeout) return {};
    EGT_TRY(drained);
  }
  return hurry ? Status() : copy_round({});
}

std::string HostCopiesWorkload::undone() const {
  if (const Status status = thread_.failure(); !status.ok()) return status.what();
  if (finished_ && !hurried_ && trips_ == 0) return "nothing was copied";
  return {};
}

PartReport HostCopiesWorkload::report() const {
  PartReport report;
  report.name = name();
  report.description = "copies to pinned host memory and back, both ways at once, verified on the device";
  const std::uint64_t bytes = trips_ * chunk_bytes_, wrong = wrong_words_;
  report.figures = {{"planned", rate_.has_value()},
                    {"chunk_bytes", chunk_bytes_},
                    {"round_trips", trips_.load()},
                    {"bytes_each_way", bytes},
                    {"gb_per_s_each_way", ratio_or_null(static_cast<double>(bytes) * 1e-9, seconds_)},
                    {"pace", pace_},
                    {"mismatches", wrong}};
  put_outcome(report, wrong ? fmt::format("{} words came back wrong from the host", wrong) : "", undone());
  if (rate_) {
    report.load.host_copies = static_cast<double>(bytes) / *rate_;
    report.load.alone = {{"host_copy_gb_per_s", *rate_ * 1e-9}};
  }
  report.work.bytes_exchanged_verified = bytes - std::min(bytes, wrong * sizeof(std::uint32_t));
  return report;
}

}  // namespace egt
