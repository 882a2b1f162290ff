#include "workload/links/links_workload.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"
#include "workload/links/link_remeasure.hpp"

namespace egt {
namespace {

constexpr std::uint64_t size_grain = 16;  ///< bytes; a multiple of whole words that suits kernels

LinksOptions whole(LinksOptions options) {
  options.size = std::max(options.size / size_grain * size_grain, size_grain);
  return options;
}

std::vector<std::string> host_ids_of(const std::vector<LinkEndpoint>& ends) {
  std::vector<std::string> ids;
  for (const LinkEndpoint& end : ends) ids.push_back(end.host_id);
  return ids;
}

/// If slow links are injected, clears the CPU lists: ends without one are judged even if they share cores.
std::vector<LinkEndpoint> judged_ends(std::vector<LinkEndpoint> ends, const Environment& environment) {
  if (environment.injector.plans(InjectionKind::slow))
    for (LinkEndpoint& end : ends) end.cpus.clear();
  return ends;
}

/// The buffers must also hold one grain per rank.
std::uint64_t memory_of(const LinksOptions& options, std::size_t ranks) {
  return std::max<std::uint64_t>(options.size, ranks * size_grain);
}

}  // namespace

LinksWorkload::LinksWorkload(Environment& environment, const LinksOptions& options,
                             std::vector<LinkEndpoint> ends, double timeout_seconds,
                             LinkContext::Stopping stopping)
    : MeasurementWorkload(environment, stopping),
      options_(whole(options)),
      ends_(judged_ends(std::move(ends), environment)),
      limits_(link_limits(environment.device.info().backend == "cuda", timeout_seconds)),
      trials_(plan_link_trials(host_ids_of(ends_))),
      bench_(environment, memory_of(options_, ends_.size()), std::move(stopping)),
      injections_(environment) {
  for (const LinkTrial& trial : trials_) {
    if (trial.kind == LinkTrial::Kind::pair) {
      PairResult& pair = pairs_.emplace_back();
      pair.a = trial.pairs[0].first;
      pair.b = trial.pairs[0].second;
      pair.method = trial.method;
    }
    if (trial.kind == LinkTrial::Kind::round) rounds_.emplace_back();
    if (trial.kind == LinkTrial::Kind::collective) collectives_.emplace_back().collective = trial.collective;
  }
}

std::size_t LinksWorkload::place_of(std::int64_t trial) const {
  const auto end = trials_.begin() + trial;
  const LinkTrial::Kind kind = end->kind;
  return static_cast<std::size_t>(
      std::count_if(trials_.begin(), end, [&](const LinkTrial& one) { return one.kind == kind; }));
}

Status LinksWorkload::prepare_trials() {
  return bench_.prepare(std::max({static_cast<std::size_t>(options_.repeats),
                                  static_cast<std::size_t>(latency_blocks), reports_of(ranks())}));
}

std::string LinksWorkload::phase_of(std::int64_t trial) const {
  const LinkTrial& one = trial_at(trial);
  switch (one.kind) {
    case LinkTrial::Kind::pair:
      return fmt::format("links: {} <-> {}, {}", one.pairs[0].first, one.pairs[0].second,
                         method_name(one.method, is_gpu()));
    case LinkTrial::Kind::again: {
      const auto pair = pair_to_measure_again();
      if (!pair) return "links: no pair looks slow";
      return fmt::format("links: {} <-> {}, {}, again", pairs_[*pair].a, pairs_[*pair].b,
                         method_name(pairs_[*pair].method, is_gpu()));
    }
    case LinkTrial::Kind::round:
      return "links: pairs at once";
    case LinkTrial::Kind::host:
      return fmt::format("links: rank {} and its host", one.rank);
    case LinkTrial::Kind::collective:
      return fmt::format("links: {}", to_string(one.collective));
  }
  return "links";
}

Status LinksWorkload::make_trial(std::int64_t trial) {
  bench_.begin(phase_of(trial), trial);
  EGT_TRY(make_by_kind(trial));
  ++made_trials_;
  return {};
}

Status LinksWorkload::make_by_kind(std::int64_t trial) {
  const LinkTrial::Kind kind = trial_at(trial).kind;
  if (kind == LinkTrial::Kind::pair) return make_pair(trial, pair_of(trial));
  if (kind == LinkTrial::Kind::again) return make_again(trial);
  judge_pairs();
  if (kind == LinkTrial::Kind::round) return make_round(trial);
  if (kind == LinkTrial::Kind::host) return make_host(trial);
  return make_collective(trial);
}

template <typename T>
Result<std::vector<T>> LinksWorkload::share_each(const T& own, const char* phase) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(double) == 0 &&
                sizeof(T) <= max_figures * sizeof(double));
  std::array<double, sizeof(T) / sizeof(double)> figures;
  std::memcpy(figures.data(), &own, sizeof(T));
  EGT_TRY_ASSIGN(const auto all, share(figures, phase));
  std::vector<T> each(static_cast<std::size_t>(ranks()));
  std::memcpy(static_cast<void*>(each.data()), all.data(), all.size() * sizeof(double));
  return each;
}

/// A failure on this rank alone fails the pair. Its peer waits until all ranks restart.
Result<LinksWorkload::PairNews> LinksWorkload::test_pair(std::int64_t trial, PairResult& result) {
  const int peer = rank() == result.a ? result.b : result.a;
  EGT_TRY(hang_on_purpose(trial, peer));
  pair_test_.emplace(
      bench_, injections_,
      LinkPairTest::Setup{
          .trial = trial, .peer = peer, .method = result.method, .options = options_, .limits = limits_});
  const auto made = pair_test_->make();
  if (made.ok() || made.status().code() == StatusCode::stopped) pair_test_.reset();
  if (made.status().code() == StatusCode::stopped) return PairNews();
  if (!made.ok()) {
    EGT_TRY(environment().communicator.check());
    if (made.status().code() == StatusCode::timeout) return made.status();
    result.why = fmt::format("rank {} with rank {}: {}", rank(), peer, made.status().what());
    environment().records.warning(fmt::format("{}: {}", phase_of(trial), result.why));
    return PairNews{.state = PairResult::State::lost};
  }
  result.why = made.value().impossible;
  PairNews own{.state = result.why.empty() ? PairResult::State::done : PairResult::State::impossible,
               .side = made.value().side};
  for (const WrongData& wrong : made.value().wrong) {
    own.wrong_words += wrong.words;
    report_wrong(wrong, trial);
  }
  return own;
}

Status LinksWorkload::make_pair(std::int64_t trial, PairResult& result) {
  using enum PairResult::State;
  PairNews own;
  if (rank() == result.a || rank() == result.b) {
    EGT_TRY_ASSIGN(own, test_pair(trial, result));
  }
  EGT_TRY_ASSIGN(const auto all, share_each(own, "waits for the pair's figures"));
  const PairNews &a = all[static_cast<std::size_t>(result.a)], &b = all[static_cast<std::size_t>(result.b)];
  if (a.wrong_words + b.wrong_words > 0) wrong_pairs_.emplace_back(result.a, result.b);
  if (a.state == b.state && a.state != not_made) {
    result.state = a.state;
  } else if (a.state != b.state) {
    result.state = lost;
  }
  if (result.state == done) {
    result.side_a = a.side;
    result.side_b = b.side;
  }
  if (result.state == lost && result.why.empty())
    result.why = fmt::format("rank {} or rank {} could not measure it; see its warning", result.a, result.b);
  return {};
}

std::optional<std::size_t> LinksWorkload::pair_to_measure_again() const {
  return egt::pair_to_measure_again(pairs_, ends_, options_.warn_below / 8);
}

Status LinksWorkload::make_again(std::int64_t trial) {
  const auto which = pair_to_measure_again();
  if (!which) return {};
  PairResult& pair = pairs_[*which];
  again_ = {.trial = trial, .pair = *which, .before = pair};
  PairResult look;
  look.a = pair.a;
  look.b = pair.b;
  look.method = pair.method;
  EGT_TRY(make_pair(trial, look));
  add_look(pair, look);
  return {};
}

/// Discards a measurement that only some ranks know, so that all ranks agree again.
void LinksWorkload::forget_again(std::int64_t trial) {
  if (again_.trial == trial) pairs_[again_.pair] = again_.before;
  if (const auto which = pair_to_measure_again()) pairs_[*which].is_settled = true;
}

/// Skips the rank's part of the trial if a hang is injected.
Status LinksWorkload::hang_on_purpose(std::int64_t trial, int peer) {
  const auto hang = injections_.take_hang(trial, peer);
  if (!hang) return {};
  return bench_.idle(hang->ms ? *hang->ms * 1e-3 : environment().peer_timeout_seconds);
}

std::vector<const PairResult*> LinksWorkload::done_between(int a, int b) const {
  std::vector<const PairResult*> done;
  for (const PairResult& pair : pairs_)
    if (pair.a == a && pair.b == b && pair.state == PairResult::State::done) done.push_back(&pair);
  return done;
}

/// Skips a pair whose own exchange trial failed, because it would delay all others again.
Status LinksWorkload::make_round(std::int64_t trial) {
  RoundResult& round = round_of(trial);
  round.repeats = options_.repeats;
  const int partner = trial_at(trial).partner_of(rank());
  PairMeasurement m{.with_all = true, .row = {.bytes = 0, .count = 1}};
  for (const LinkTrial::Pair& members : trial_at(trial).pairs) {
    RoundResult::PairFigures& figures = round.pairs.emplace_back();
    std::tie(figures.a, figures.b) = members;
    double rate = 0;
    for (const PairResult* pair : done_between(figures.a, figures.b)) {
      round.repeats = std::min(round.repeats, pair->side_a.repeats);
      if (pair->method == LinkMethod::exchange) figures.bytes = pair->side_a.largest;
      if (rate == 0 && pair->both_ways().is_measured())
        rate = static_cast<double>(pair->side_a.largest) / pair->both_ways().median;
    }
    if (members != LinkTrial::Pair(std::minmax(rank(), partner)) || figures.bytes == 0) continue;
    m.row.bytes = figures.bytes;
    m.sends = m.receives = true;
    m.extra_bytes = injections_.extra_bytes(trial, partner, m.row, rate > 0 ? rate : 1);
  }
  m.repeats = round.repeats;
  LinkPairTest test(bench_, injections_, {.trial = trial, .peer = m.sends ? partner : -1});
  auto made = test.measure(m);
  if (made.status().code() == StatusCode::stopped) return {};  // all ranks stop together
  EGT_TRY_ASSIGN(const MeasuredRow measured, std::move(made));
  if (measured.wrong) report_wrong(*measured.wrong, trial);
  const LinkTiming own = m.sends ? timing_of(seconds_of(measured.repeats)) : LinkTiming();
  EGT_TRY_ASSIGN(const auto all, share_each(own, "waits for all pairs' figures"));
  for (RoundResult::PairFigures& pair : round.pairs)
    pair.both_ways = longer_of(all[static_cast<std::size_t>(pair.a)], all[static_cast<std::size_t>(pair.b)]);
  round.is_made = true;
  return {};
}

Status LinksWorkload::make_host(std::int64_t trial) {
  if (trial_at(trial).rank != rank()) return {};
  auto made = LinkHostCopies(bench_, trial, options_).make();
  for (int looks = 1; made.ok(); ++looks) {
    host_.outcome = std::move(made.value());
    host_.is_made = true;
    for (const WrongData& wrong : host_.outcome.wrong) report_wrong(wrong, trial);
    const std::vector<Finding> slow = judge_host();
    if (slow.empty()) return {};
    if (looks == max_looks) {
      for (const Finding& finding : slow) environment().records.emit(finding, trial);
      return {};
    }
    made = LinkHostCopies(bench_, trial, options_).make();
  }
  if (made.status().code() == StatusCode::stopped) return {};
  EGT_TRY(environment().communicator.check());
  if (made.status().code() == StatusCode::timeout) return made.status();
  host_.lost = made.status().what();
  return {};
}

Status LinksWorkload::make_collective(std::int64_t trial) {
  CollectiveResult& result = collective_of(trial);
  LinkCollectiveTrial collective(
      bench_, injections_, trial, result.collective, options_, limits_,
      [this](std::span<const double> own) { return share(own, "waits for the collective's figures"); });
  auto made = collective.make();
  if (made.status().code() == StatusCode::stopped) return {};  // all ranks stop together
  EGT_TRY_ASSIGN(result.outcome, std::move(made));
  result.is_made = true;
  wrong_words_ += result.outcome.own_wrong_words;
  if (rank() == 0)
    for (const CollectiveFinding& finding : result.outcome.findings) report_wrong_collective(result, finding);
  return {};
}

void LinksWorkload::lose_trial(std::int64_t trial) {
  ++lost_trials_;
  const LinkTrial& lost = trial_at(trial);
  const std::string why = "the ranks lost communication in it and restarted after it";
  switch (lost.kind) {
    case LinkTrial::Kind::pair: {
      PairResult& pair = pair_of(trial);
      pair.state = PairResult::State::lost;
      if (pair.why.empty())
        pair.why = fmt::format("rank {} and rank {} did not come through it: {}", pair.a, pair.b, why);
      break;
    }
    case LinkTrial::Kind::again:
      forget_again(trial);
      break;
    case LinkTrial::Kind::round:
      round_of(trial).lost = why;
      break;
    case LinkTrial::Kind::host:
      if (lost.rank == rank()) host_ = {.is_made = false, .lost = why, .outcome = {}};
      break;
    case LinkTrial::Kind::collective:
      collective_of(trial).lost = why;
      break;
  }
}

Status LinksWorkload::recover(double timeout_seconds) {
  EGT_TRY(bench_.recover(timeout_seconds));
  pair_test_.reset();
  return {};
}

Status LinksWorkload::finish(const Shutdown& ending) {
  if (!ending.hurry) judge_pairs();
  return {};
}

void LinksWorkload::report_wrong(const WrongData& wrong, std::int64_t trial) {
  wrong_words_ += wrong.words;
  Fault fault = fault_of(environment(), "link", "links", phase_of(trial), trial);
  fault.part = name();
  if (wrong.from < 0) {
    fault.where = place_of_host_copy(rank(), wrong.bytes);
  } else {
    auto pairs = wrong_pairs_;
    pairs.push_back(std::minmax(rank(), wrong.from));
    const auto common = common_rank(pairs);
    fault.rank = common.value_or(rank());
    fault.blame = common ? Blame::majority : Blame::ambiguous;
    if (!common) fault.suspects = {pairs.back().first, pairs.back().second};
    if (common && *common != rank()) {
      fault.hostname = ends_[static_cast<std::size_t>(*common)].hostname;
      fault.device_uuid.clear();  // the result contains it
    }
    fault.where = fmt::format("what rank {} received from rank {}, a transfer of {} B", rank(), wrong.from,
                              wrong.bytes);
  }
  fault.offset = wrong.offset;
  show_difference(fault, wrong.expected, wrong.actual);
  fault.count = wrong.words;
  environment().records.emit(fault);
}

void LinksWorkload::report_wrong_collective(const CollectiveResult& result,
                                            const CollectiveFinding& finding) {
  const char* const name = to_string(result.collective);
  Fault fault = fault_of(environment(), "collective", fmt::format("links: known-answer {}", name),
                         fmt::format("links: {}", name), trial());
  fault.part = this->name();
  show_finding(fault, finding);
  fault.where += fmt::format(", {} B", result.outcome.wrong_size);
  fault.hostname = fault.rank < 0 ? "" : ends_[static_cast<std::size_t>(fault.rank)].hostname;
  fault.device_uuid.clear();
  environment().records.emit(fault);
}

/// Runs once, after all pair trials.
void LinksWorkload::judge_pairs() {
  if (std::exchange(pairs_are_judged_, true) || rank() != 0) return;
  for (const Finding& finding : judge_links(directions_of(pairs_, ends_), ends_, options_.warn_below / 8))
    environment().records.emit(finding, trial());
}

std::vector<Finding> LinksWorkload::judge_host() const {
  std::vector<Finding> findings;
  const auto bytes = static_cast<double>(host_.outcome.bytes);
  for (const auto& [what, timing] : {std::pair("host to device", &HostCopyFigures::to_device),
                                     std::pair("device to host", &HostCopyFigures::from_device)}) {
    double median = 0;
    for (const HostCopyFigures& node : host_.outcome.nodes)
      if ((node.*timing).is_measured()) median = std::max(median, bytes / (node.*timing).median);
    if (auto finding = judge_host_link(own_end(), what, median)) findings.push_back(std::move(*finding));
  }
  return findings;
}

/// The directions of a pair that are below their limit by its method.
std::set<std::pair<int, int>> LinksWorkload::slow_directions(const PairResult& pair,
                                                             const std::vector<LinkFigure>& slow) const {
  std::set<std::pair<int, int>> directions;
  for (const LinkFigure& figure : slow)
    if (&pairs_[figure.source] == &pair) directions.emplace(figure.from, figure.to);
  return directions;
}

PartReport LinksWorkload::report() const {
  PartReport part;
  part.name = "links";
  part.description = "What this rank received over all its links, all of it verified";
  part.success = wrong_words_ == 0;
  if (!part.success) part.failure = "data came wrong";
  const std::uint64_t wrong_bytes = wrong_words_ * sizeof(std::uint32_t), bytes = bench_.verified_bytes();
  part.work.bytes_exchanged_verified = bytes - std::min(bytes, wrong_bytes);
  part.figures = {{"measurement", "end"},
                  {"trials", made_trials_},
                  {"lost_trials", lost_trials_},
                  {"bytes_verified", bytes},
                  {"wrong_words", wrong_words_},
                  {"largest_transfer_bytes", options_.size},
                  {"warn_below_gbit_per_second", options_.warn_below * 1e-9},
                  {"end", to_json(own_end())}};
  return part;
}

std::vector<PartReport> LinksWorkload::reports() const {
  std::vector<PartReport> parts = {report()};
  const std::vector<LinkFigure> slow = slow_links(directions_of(pairs_, ends_), options_.warn_below / 8);
  for (const PairResult& pair : pairs_)
    if (pair.a == rank() && pair.state != PairResult::State::not_made)
      parts.push_back(pair_report(pair, ends_, slow_directions(pair, slow)));
  if (host_.is_made || !host_.lost.empty()) parts.push_back(host_report(host_, own_end()));
  if (rank() != 0) return parts;
  for (std::size_t i = 0; i < rounds_.size(); ++i)
    if (rounds_[i].is_made || !rounds_[i].lost.empty())
      parts.push_back(round_report(rounds_[i], static_cast<int>(i) + 1, is_gpu()));
  for (const CollectiveResult& collective : collectives_)
    if (collective.is_made || !collective.lost.empty())
      parts.push_back(collective_report(collective, ranks()));
  return parts;
}

}  // namespace egt
