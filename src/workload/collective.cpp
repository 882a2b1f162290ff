#include "egt/workload/collective.hpp"

#include <fmt/format.h>

#include "egt/core/wait.hpp"

namespace egt {

namespace {

constexpr double round_timeout_s = 60.0;

std::uint64_t round_seed(std::uint64_t seed, std::int64_t step) {
  return mix64(seed + static_cast<std::uint64_t>(step));
}

}  // namespace

CollectiveWorkload::CollectiveWorkload(const Environment& environment, const CollectiveOptions& options,
                                       std::function<Stream&()> stream)
    : environment_(environment), options_(options), stream_(std::move(stream)) {}

Status CollectiveWorkload::prepare() {
  if (!planned()) return {};
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(data_, device.allocate(options_.elements * sizeof(float)));
  EGT_TRY_ASSIGN(reports_, device.allocate(2 * sizeof(Mismatches)));
  EGT_TRY_ASSIGN(reports_pinned_, device.allocate_pinned(2 * sizeof(Mismatches)));
  for (auto* event : {&sum_begin_, &sum_end_, &broadcast_begin_, &broadcast_end_, &done_}) {
    EGT_TRY_ASSIGN(*event, device.create_event());
  }
  return {};
}

Status CollectiveWorkload::enqueue(const Step& step) {
  return has_round(step.index) ? enqueue_round(step.index) : Status();
}

Status CollectiveWorkload::enqueue_round(std::int64_t step) {
  Device& device = environment_.device;
  Communicator& communicator = environment_.communicator;
  Stream& stream = stream_();
  const WordsView words{data_.as<std::uint32_t>(), options_.elements};
  auto* reports = reports_.as<Mismatches>();
  const auto rank = static_cast<std::uint32_t>(environment_.place.rank),
             size = static_cast<std::uint32_t>(environment_.place.size);
  const std::uint64_t seed = round_seed(environment_.seed, step);
  const int root = static_cast<int>(step / options_.every % environment_.place.size);
  const Pattern message{.kind = PatternKind::random, .parameter = 0, .seed = ~seed};
  Pattern before = message;
  if (environment_.place.rank != root) before.kind = PatternKind::random_inverse;

  for (int i = 0; i < 2; ++i) EGT_TRY(device.reset(reports + i, stream));
  EGT_TRY(device.fill(
      words,
      {.kind = PatternKind::contribution, .parameter = std::min(rank, contribution_fields), .seed = seed},
      stream));
  EGT_TRY(device.record(*sum_begin_, stream));
  EGT_TRY(communicator.all_reduce(words.data, words.count, ElementType::f32, stream));
  EGT_TRY(device.record(*sum_end_, stream));
  EGT_TRY(device.verify(
      words,
      {.kind = PatternKind::contribution_sum, .parameter = std::min(size, contribution_fields), .seed = seed},
      reports, stream));
  EGT_TRY(device.fill(words, before, stream));
  EGT_TRY(device.record(*broadcast_begin_, stream));
  EGT_TRY(communicator.broadcast(words.data, words.bytes(), root, stream));
  EGT_TRY(device.record(*broadcast_end_, stream));
  EGT_TRY(device.verify(words, message, reports + 1, stream));
  EGT_TRY(device.copy(reports_pinned_.data(), reports, reports_.bytes(), stream));
  EGT_TRY(device.record(*done_, stream));
  return {};
}

Status CollectiveWorkload::retire(std::int64_t step, StepOutcome&) {
  return has_round(step) ? collect_round(step) : Status();
}

Status CollectiveWorkload::collect_round(std::int64_t step) {
  EGT_TRY(wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(environment_.communicator.check());
        return environment_.device.done(*done_);
      },
      {.seconds = round_timeout_s, .what = "a known-answer collective"}));
  EGT_TRY_ASSIGN(const double sum_ms, environment_.device.elapsed_ms(*sum_begin_, *sum_end_));
  EGT_TRY_ASSIGN(const double broadcast_ms,
                 environment_.device.elapsed_ms(*broadcast_begin_, *broadcast_end_));
  sum_ms_ += sum_ms;
  broadcast_ms_ += broadcast_ms;
  ++rounds_;
  elements_checked_ += 2 * options_.elements;
  look_at(reports_pinned_.as<Mismatches>()[0], "known-answer all-reduce", step);
  look_at(reports_pinned_.as<Mismatches>()[1], "known-answer broadcast", step);
  return {};
}

void CollectiveWorkload::look_at(const Mismatches& found, const char* detector, std::int64_t step) {
  if (found.count == 0) return;
  mismatches_ += found.count;
  const Mismatches::Sample& sample = found.sample[0];
  Fault fault;
  fault.kind = "collective";
  fault.detector = detector;
  fault.rank = environment_.place.rank;
  fault.hostname = environment_.place.hostname;
  fault.device_uuid = environment_.device.info().uuid;
  fault.step = step;
  fault.phase = "collective";
  fault.where =
      fmt::format("element {} of {}, as received by rank {}", sample.index, options_.elements, fault.rank);
  fault.offset = sample.index * sizeof(float);
  fault.expected = fmt::format("0x{:08x}", sample.expected);
  fault.actual = fmt::format("0x{:08x}", sample.actual);
  fault.xor_mask = fmt::format("0x{:08x}", sample.expected ^ sample.actual);
  fault.count = found.count;
  fault.blame = Blame::ambiguous;  // it was received here; who sent it wrong is not known
  environment_.records.emit(fault);
}

/// A run shorter than the period still gets its round: all ranks come here after the same step.
Status CollectiveWorkload::finish(bool hurry) {
  if (hurry || !planned() || rounds_ > 0) return {};
  EGT_TRY(enqueue_round(0));
  return collect_round(0);
}

PartReport CollectiveWorkload::report() const {
  PartReport part;
  part.name = "collective";
  part.description = "All-reduce and broadcast with known answers while the devices are busy";
  part.success = mismatches_ == 0;
  if (mismatches_ > 0) part.failure = "a collective gave wrong elements";
  const double n = environment_.place.size;
  const double bytes = static_cast<double>(options_.elements) * sizeof(float) * static_cast<double>(rounds_);
  // Bus bandwidth as nccl-tests defines it: an all-reduce moves 2 (n - 1) / n of its size over each link.
  part.figures = {
      {"rounds", rounds_},
      {"bytes_per_round", planned() ? Json(options_.elements * sizeof(float)) : Json(nullptr)},
      {"all_reduce_bus_gb_per_s",
       sum_ms_ > 0 ? Json(bytes * 2 * (n - 1) / n / sum_ms_ / 1e6) : Json(nullptr)},
      {"broadcast_gb_per_s", broadcast_ms_ > 0 ? Json(bytes / broadcast_ms_ / 1e6) : Json(nullptr)},
      {"elements_checked", elements_checked_},
      {"mismatches", mismatches_}};
  part.work.collective_elements_checked = elements_checked_ - std::min(mismatches_, elements_checked_);
  return part;
}

}  // namespace egt
