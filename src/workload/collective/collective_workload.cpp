#include "workload/collective/collective_workload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "egt/core/wait.hpp"
#include "workload/common/findings.hpp"

namespace egt {

namespace {

/// Alignment of slices in elements, if they are long enough, for kernel speed.
constexpr std::uint64_t slice_grain = 64;
/// The place (an injection's layer minus 1) of a rank's all-reduce contribution. Lower places are the
/// collectives that it receives.
constexpr int contribution_place = collective_kinds;

/// Identity of a rank, so that a fault record can identify the node and device of any rank, and the results
/// of its memory-resident GEMMs. Sent with every report.
struct Introduction {
  char hostname[256];
  char device_uuid[64];
  std::uint64_t device_model;  ///< a hash of Environment::device_model
  AnswerList answers;
};

std::size_t index_of(CollectiveKind kind) {
  return static_cast<std::size_t>(kind);
}

template <std::size_t size>
void copy_text(char (&to)[size], const std::string& text) {
  const std::size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

std::uint64_t slice_elements(std::uint64_t elements, std::uint64_t ranks) {
  const std::uint64_t share = elements / ranks;
  return share >= slice_grain ? share / slice_grain * slice_grain : std::max<std::uint64_t>(share, 1);
}

}  // namespace

CollectiveWorkload::CollectiveWorkload(const Environment& environment, const CollectiveOptions& options,
                                       std::function<Stream&()> stream, std::function<double()> summed_bytes,
                                       std::function<std::vector<OperandAnswer>()> answers)
    : environment_(environment),
      options_(options),
      stream_(std::move(stream)),
      summed_bytes_(std::move(summed_bytes)),
      answers_(std::move(answers)),
      reporter_(environment_),
      slice_elements_(slice_elements(options.elements, static_cast<std::uint64_t>(environment.place.size))) {
  for (const Injection& injection : environment_.injector.all())
    if (injection.kind == InjectionKind::collective && !injection.peer &&
        injection.rank < environment_.place.size)
      planned_injections_.push_back(injection);
}

std::size_t CollectiveWorkload::told_bytes() const {
  return sizeof(Introduction) + reports_of(environment_.place.size) * sizeof(Mismatches);
}

Mismatches* CollectiveWorkload::own_report(std::size_t index) const {
  return reinterpret_cast<Mismatches*>(reported_.as<std::byte>() + sizeof(Introduction)) + index;
}

std::uint64_t CollectiveWorkload::seed(const Slot& slot, CollectiveKind kind, int block) const {
  std::uint64_t seed = environment_.seed;
  for (const std::uint64_t part :
       {slot.round.number, static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(block)})
    seed = mix64((seed ^ part) + 0x9E3779B97F4A7C15ull);
  return seed;
}

/// `data_` holds all slices, `slice_` the one of this rank.
KnownAnswer CollectiveWorkload::known_answer(const Slot& slot, CollectiveKind kind) const {
  using enum CollectiveKind;
  auto *const data = data_.as<std::uint32_t>(), *const own = slice_.as<std::uint32_t>();
  const bool is_split = kind == reduce_scatter || kind == all_gather;
  return {.kind = kind,
          .round = slot.round,
          .rank = environment_.place.rank,
          .part_words = is_split ? slice_elements_ : options_.elements,
          .send = kind == all_gather ? own : data,
          .receive = kind == reduce_scatter ? own : data,
          .seed = [this, &slot, kind](int from, int to) { return seed(slot, kind, std::max(from, to)); }};
}

Status CollectiveWorkload::prepare() {
  if (!planned()) return {};
  Device& device = environment_.device;
  const std::uint64_t elements = std::max(options_.elements, slice_elements_ * ranks());
  EGT_TRY_ASSIGN(data_, device.allocate(elements * sizeof(float)));
  EGT_TRY_ASSIGN(slice_, device.allocate(slice_elements_ * sizeof(float)));
  EGT_TRY_ASSIGN(reported_, device.allocate(told_bytes()));
  EGT_TRY_ASSIGN(gathered_, device.allocate(told_bytes() * ranks()));
  for (Slot& slot : slots_) {
    EGT_TRY_ASSIGN(slot.introduction, device.allocate_pinned(sizeof(Introduction)));
    EGT_TRY_ASSIGN(slot.gathered, device.allocate_pinned(told_bytes() * ranks()));
    EGT_TRY_ASSIGN(slot.done, device.create_event(EventUse::order));
    for (auto* events : {&slot.begin, &slot.end})
      for (auto& event : *events) {
        EGT_TRY_ASSIGN(event, device.create_event(EventUse::timing));
      }
  }
  return {};
}

Status CollectiveWorkload::introduce(Slot& slot) {
  auto* self = slot.introduction.as<Introduction>();
  *self = {};
  copy_text(self->hostname, environment_.place.hostname);
  copy_text(self->device_uuid, environment_.device.info().uuid);
  self->device_model = std::hash<std::string>()(environment_.device_model);
  self->answers.set(answers_());
  return environment_.device.copy(reported_.data(), self, sizeof(Introduction), stream_());
}

/// Times all-reduces on otherwise idle devices, after one warm-up collective of each kind, which may load
/// code. All ranks run equally many.
Status CollectiveWorkload::start() {
  if (!planned()) return {};
  constexpr int timed = 4;
  Device& device = environment_.device;
  const Slot& first = slots_.front();
  const KnownAnswer answer = known_answer(first, CollectiveKind::all_reduce);
  EGT_TRY(device.set_zero(data_.data(), data_.bytes(), stream_()));
  for (int kind = 0; kind < collective_kinds; ++kind)
    EGT_TRY(known_answer(first, static_cast<CollectiveKind>(kind)).run(environment_.communicator, stream_()));
  EGT_TRY(device.record(*first.begin[0], stream_()));
  for (int i = 0; i < timed; ++i) EGT_TRY(answer.run(environment_.communicator, stream_()));
  EGT_TRY(device.record(*first.end[0], stream_()));
  EGT_TRY(await_peers(*first.end[0], "the first all-reduces"));
  EGT_TRY_ASSIGN(const double ms, device.elapsed_ms(*first.begin[0], *first.end[0]));
  if (ms > 0) rate_ = timed * moved_by(CollectiveKind::all_reduce) / ms * 1e3;
  return {};
}

Status CollectiveWorkload::await_peers(const Event& event, const char* what) {
  return wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(environment_.communicator.check());
        return environment_.device.done(event);
      },
      {.seconds = environment_.peer_timeout_seconds, .what = what});
}

/// Bus bytes of one collective of a round.
double CollectiveWorkload::moved_by(CollectiveKind kind) const {
  const bool is_split = kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_gather;
  const std::uint64_t words = is_split ? slice_elements_ * ranks() : options_.elements;
  return static_cast<double>(words * sizeof(float)) * bus_factor(kind, environment_.place.size);
}

Status CollectiveWorkload::enqueue(const Step& step) {
  last_step_ = step.index;
  return has_round(step.index) ? enqueue_round(step.index) : Status();
}

Status CollectiveWorkload::enqueue_round(std::int64_t step) {
  if (enqueued_ - rounds_ == slots)
    return {StatusCode::internal, "more rounds of collectives are enqueued than there are slots"};
  Slot& slot = slots_[enqueued_ % slots];
  slot.step = step;
  slot.round = {.number = first_number_ + enqueued_ - rounds_before_,
                .size = environment_.place.size,
                .slice = slice_elements_};
  take_injections(slot);
  EGT_TRY(introduce(slot));
  for (std::size_t i = 0; i < reports_of(environment_.place.size); ++i)
    EGT_TRY(environment_.device.reset(own_report(i), stream_()));
  for (int kind = 0; kind < collective_kinds; ++kind)
    EGT_TRY(enqueue_collective(slot, static_cast<CollectiveKind>(kind)));
  EGT_TRY(enqueue_exchange(slot));
  ++enqueued_;
  return {};
}

Status CollectiveWorkload::enqueue_collective(Slot& slot, CollectiveKind kind) {
  const KnownAnswer answer = known_answer(slot, kind);
  EGT_TRY(answer.fill(environment_.device, stream_()));
  if (kind == CollectiveKind::all_reduce) EGT_TRY(inject(slot, contribution_place, answer.received()));
  EGT_TRY(environment_.device.record(*slot.begin[index_of(kind)], stream_()));
  EGT_TRY(answer.run(environment_.communicator, stream_()));
  EGT_TRY(environment_.device.record(*slot.end[index_of(kind)], stream_()));
  EGT_TRY(inject(slot, static_cast<int>(kind), answer.received()));
  return answer.verify(environment_.device, own_report(sum_report), stream_());
}

/// All ranks must call it, because it is collective. The receive buffer starts with zeros, which are no valid
/// report, so an exchange that does nothing is detected.
Status CollectiveWorkload::enqueue_exchange(Slot& slot) {
  Device& device = environment_.device;
  std::memset(slot.gathered.data(), 0, slot.gathered.bytes());
  EGT_TRY(device.set_zero(gathered_.data(), gathered_.bytes(), stream_()));
  EGT_TRY(environment_.communicator.all_gather(reported_.data(), gathered_.data(), told_bytes(), stream_()));
  EGT_TRY(device.copy(slot.gathered.data(), gathered_.data(), gathered_.bytes(), stream_()));
  return device.record(*slot.done, stream_());
}

/// From 0; `layer` minus 1 as described at CollectiveWorkload.
int CollectiveWorkload::place_of(const Injection& injection) const {
  return choose_layer(injection, injection.layer ? contribution_place + 1 : contribution_place,
                      environment_.seed);
}

bool CollectiveWorkload::strikes(const Injection& injection, const CollectiveRound& round) const {
  return place_of(injection) != contribution_place || round.contributes(injection.rank);
}

void CollectiveWorkload::take_injections(const Slot& slot) {
  std::erase_if(planned_injections_, [&](const Injection& injection) {
    return injection.step <= slot.step && strikes(injection, slot.round);
  });
  while (auto injection = environment_.injector.take(InjectionKind::collective, slot.step,
                                                     [](const Injection& one) { return !one.peer; }))
    own_injections_.push_back(*std::move(injection));
}

/// Flips bits in `words` for the injections of this round at `place`.
Status CollectiveWorkload::inject(const Slot& slot, int place, WordsView words) {
  for (const Injection& injection : own_injections_) {
    if (place_of(injection) != place || !strikes(injection, slot.round)) continue;
    Flip flip = choose_flip(injection, words.count, environment_.seed);
    const bool sent = place == contribution_place;
    if (sent && !injection.mask) flip = flip_contribution(slot, injection, flip);
    EGT_TRY(environment_.device.flip(words, flip, stream_()));
    const CollectiveKind kind = sent ? CollectiveKind::all_reduce : static_cast<CollectiveKind>(place);
    environment_.injector.report(injection, slot.step, flip,
                                 fmt::format("what rank {} {} the {}", injection.rank,
                                             sent ? "puts into" : "receives of", to_string(kind)));
  }
  std::erase_if(own_injections_, [&](const Injection& injection) {
    return place_of(injection) == place && strikes(injection, slot.round);
  });
  return {};
}

/// Replaces all affected words by one valid contribution of this rank that differs from the first word's.
/// Flipping bits of the float would corrupt other sources' fields of the sum.
Flip CollectiveWorkload::flip_contribution(const Slot& slot, const Injection& injection, Flip flip) const {
  const PatternFunction own(known_answer(slot, CollectiveKind::all_reduce).put_in(injection.rank, 0));
  const std::uint32_t parts = contribution_parts(own.pattern.seed, flip.first) & own.field_mask;
  const auto chosen = static_cast<std::uint32_t>(std::countr_zero(flip.mask)) % contribution_field_bits;
  const auto field = static_cast<std::uint32_t>(slot.round.field_of(injection.rank));
  const std::uint32_t changed = parts ^ (1u << (contribution_field_bits * field + chosen));
  flip.keep = 0;
  flip.mask = float_bits(static_cast<float>(changed));
  return flip;
}

bool CollectiveWorkload::injection_is_due() const {
  return std::any_of(planned_injections_.begin(), planned_injections_.end(),
                     [&](const Injection& injection) { return injection.step <= last_step_; });
}

Status CollectiveWorkload::retire(std::int64_t step, StepOutcome&) {
  if (planned())
    moved_bytes_ += summed_bytes_() * bus_factor(CollectiveKind::all_reduce, environment_.place.size);
  return has_round(step) ? collect_round() : Status();
}

/// Round numbers restart at a new base, because some ranks may have collected a round that others aborted.
Status CollectiveWorkload::resume(RestartInfo& restart) {
  constexpr int max_rounds_log2 = 40;
  first_number_ = static_cast<std::uint64_t>(restart.number) << max_rounds_log2;
  enqueued_ = rounds_before_ = rounds_;
  planned_injections_.clear();
  for (const Injection& injection : environment_.injector.all())
    if (injection.kind == InjectionKind::collective && !injection.peer &&
        injection.rank < environment_.place.size && injection.step >= restart.next_step)
      planned_injections_.push_back(injection);
  return {};
}

/// Collects the oldest round in flight.
Status CollectiveWorkload::collect_round() {
  const Slot& slot = slots_[rounds_ % slots];
  ProgressBoard::Line& line = environment_.board.line("main");
  line.begin("collective: round", slot.step);
  line.wait_for_peers("collective: round");
  EGT_TRY(await_peers(*slot.done, "a round of known-answer collectives"));
  for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
    EGT_TRY_ASSIGN(const double ms, environment_.device.elapsed_ms(*slot.begin[kind], *slot.end[kind]));
    milliseconds_[kind] += ms;
    moved_bytes_ += moved_by(static_cast<CollectiveKind>(kind));
  }
  ++rounds_;
  elements_checked_ += 2 * options_.elements + slice_elements_ * (1 + ranks());
  look_at(slot, read_reports(slot));
  compare_operands(slot);
  return {};
}

/// Compares the ranks' GEMM results over the same operands. The faulty rank reports the fault.
void CollectiveWorkload::compare_operands(const Slot& slot) {
  std::vector<std::vector<OperandAnswer>> answers;
  std::vector<std::uint64_t> models;
  std::vector<int> groups;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto* reported =
        reinterpret_cast<const Introduction*>(slot.gathered.as<std::byte>() + rank * told_bytes());
    answers.push_back(reported->answers.get());
    models.push_back(reported->device_model);
    groups.push_back(
        static_cast<int>(std::find(models.begin(), models.end(), models.back()) - models.begin()));
  }
  for (const auto& [answer, dissent] : operands_.compare(answers, groups)) {
    Fault fault = fault_of(environment_, "gemm", "operand digest", "memory", slot.step);
    fault.incident = fmt::format("operands in round {}", slot.round.number);
    fault.where = describe(answer);
    show_difference(fault, dissent.expected, dissent.actual);
    reporter_.report(std::move(fault), dissent);
  }
  reporter_.end_check();
}

std::vector<RankReports> CollectiveWorkload::read_reports(const Slot& slot) const {
  std::vector<RankReports> reports;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const auto* reported = slot.gathered.as<std::byte>() + rank * told_bytes() + sizeof(Introduction);
    reports.push_back(rank_reports(reinterpret_cast<const Mismatches*>(reported), environment_.place.size));
  }
  return reports;
}

void CollectiveWorkload::look_at(const Slot& slot, const std::vector<RankReports>& reports) {
  const int self = environment_.place.rank;
  const RankReports& own = reports[static_cast<std::size_t>(self)];
  std::uint64_t wrong = own.all_reduce.count + own.broadcast.count + own.reduce_scatter.count;
  for (const Mismatches& block : own.blocks) wrong += block.count;
  const auto found = judge_round(slot.round, reports);
  const bool named = std::any_of(found.begin(), found.end(), [&](const CollectiveFinding& finding) {
    return finding.rank == self ||
           std::find(finding.suspects.begin(), finding.suspects.end(), self) != finding.suspects.end();
  });
  mismatches_ += wrong;
  wrong_rounds_ += wrong > 0 || named;
  const auto fresh = incidents_.begin(slot.round, found);
  for (const CollectiveFinding& finding : fresh)
    if (self == 0 || finding.in_own_copy) report(slot, finding);
}

void CollectiveWorkload::report(const Slot& slot, const CollectiveFinding& finding) {
  Fault fault = fault_of(environment_, "collective", fmt::format("known-answer {}", to_string(finding.kind)),
                         "collective", slot.step);
  show_finding(fault, finding);
  if (finding.in_own_copy) fault.incident = fmt::format("reports of round {}", slot.round.number);
  Introduction blamed{};
  if (fault.rank >= 0)
    std::memcpy(&blamed, slot.gathered.as<std::byte>() + static_cast<std::size_t>(fault.rank) * told_bytes(),
                sizeof blamed);
  fault.hostname = std::string(blamed.hostname, strnlen(blamed.hostname, sizeof blamed.hostname));
  fault.device_uuid = std::string(blamed.device_uuid, strnlen(blamed.device_uuid, sizeof blamed.device_uuid));
  environment_.records.emit(fault);
}

/// All ranks call this after the same step with the same injection plan. Each pending injection is applied
/// within as many rounds as there are ranks.
Status CollectiveWorkload::finish(const Shutdown& ending) {
  if (ending.hurry || !planned()) return {};
  while (rounds_ == 0 || injection_is_due()) {
    EGT_TRY(enqueue_round(last_step_));
    EGT_TRY(collect_round());
  }
  return {};
}

PartReport CollectiveWorkload::report() const {
  PartReport part;
  part.name = "collective";
  part.description = "Collectives with known answers while the devices are busy";
  part.success = wrong_rounds_ == 0;
  if (wrong_rounds_ > 0) part.failure = "a collective gave wrong elements, here or through this rank";
  const auto bus = [&](CollectiveKind kind) {
    return ratio_or_null(moved_by(kind) * static_cast<double>(rounds_) * 1e-6, milliseconds_[index_of(kind)]);
  };
  if (rate_) {
    part.load.collective = moved_bytes_ / *rate_;
    part.load.alone = {{"all_reduce_bus_gb_per_s", *rate_ * 1e-9}};
  }
  part.figures = {{"rounds", rounds_},
                  {"wrong_rounds", wrong_rounds_},
                  {"bytes_per_round", planned() ? Json(options_.elements * sizeof(float)) : Json(nullptr)},
                  {"all_reduce_bus_gb_per_s", bus(CollectiveKind::all_reduce)},
                  {"broadcast_bus_gb_per_s", bus(CollectiveKind::broadcast)},
                  {"reduce_scatter_bus_gb_per_s", bus(CollectiveKind::reduce_scatter)},
                  {"all_gather_bus_gb_per_s", bus(CollectiveKind::all_gather)},
                  {"elements_checked", elements_checked_},
                  {"operands_compared", operands_.compared()},
                  {"mismatches", mismatches_}};
  if (!planned()) note_not_run(part, "known-answer collectives", "one rank has no peers to exchange with");
  part.work.collective_elements_checked = elements_checked_ - std::min(mismatches_, elements_checked_);
  return part;
}

}  // namespace egt
