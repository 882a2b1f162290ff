#include "workload/links/collective_sweep.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"
#include "workload/links/link_judgement.hpp"

namespace egt {
namespace {

constexpr std::uint64_t word = sizeof(std::uint32_t);
constexpr std::uint64_t ready_bytes = 1'000'000;
constexpr int max_in_row = 16;  ///< each needs its own patterns for every pair of ranks
/// Alignment of the parts in words, if they are long enough, for kernel speed.
constexpr std::uint64_t part_grain = 64;

/// Each block goes from one rank to another, so both are suspects. If all wrong blocks share one rank, it is
/// blamed by majority.
std::vector<CollectiveFinding> judge_all_to_all(const std::vector<RankReports>& reports) {
  std::vector<std::pair<int, int>> wrong;
  std::vector<CollectiveFinding> findings;
  const int ranks = static_cast<int>(reports.size());
  for (int to = 0; to < ranks; ++to)
    for (int from = 0; from < ranks; ++from) {
      const Mismatches& found = reports[static_cast<std::size_t>(to)].blocks[static_cast<std::size_t>(from)];
      if (found.count == 0) continue;
      CollectiveFinding& finding = findings.emplace_back();
      finding.sample = lowest_sample(found);
      finding.count = found.count;
      finding.suspects = {std::min(from, to), std::max(from, to)};
      finding.where = fmt::format("element {} of what rank {} receives from rank {} in the all-to-all",
                                  finding.sample.index, to, from);
      wrong.emplace_back(finding.suspects[0], finding.suspects[1]);
    }
  if (const auto rank = common_rank(wrong))
    for (CollectiveFinding& finding : findings) {
      finding.rank = *rank;
      finding.blame = Blame::majority;
      finding.suspects.clear();
    }
  return findings;
}

}  // namespace

LinkCollectiveTrial::LinkCollectiveTrial(LinkContext& bench, LinkInjections& injections, std::int64_t trial,
                                         CollectiveKind collective, const LinksOptions& options,
                                         const LinkLimits& limits, Share share)
    : bench_(bench),
      injections_(injections),
      trial_(trial),
      collective_(collective),
      options_(options),
      limits_(limits),
      share_(std::move(share)),
      ranks_(bench.environment().place.size),
      self_(bench.environment().place.rank) {}

LinkCollectiveTrial::Row LinkCollectiveTrial::row_of(std::uint64_t index, std::uint64_t bytes,
                                                     int count) const {
  Row row{.index = index, .part_words = std::max<std::uint64_t>(bytes / word, 1), .count = count};
  if (is_split()) row.part_words = std::max<std::uint64_t>(row.part_words / ranks(), 1);
  if (row.part_words > part_grain) row.part_words = row.part_words / part_grain * part_grain;
  const std::uint64_t most = bench_.bytes() / std::max(bytes_of(row), word);
  row.count = static_cast<int>(std::clamp<std::uint64_t>(most, 1, static_cast<std::uint64_t>(count)));
  return row;
}

std::uint64_t LinkCollectiveTrial::bytes_of(const Row& row) const {
  return row.part_words * (is_split() ? ranks() : 1) * word;
}

WordsView LinkCollectiveTrial::received(const Row& row) const {
  return bench_.incoming(row.part_words * KnownAnswer::parts_received(collective_, ranks_) *
                         static_cast<std::uint64_t>(row.count) * word);
}

CollectiveRound LinkCollectiveTrial::round_of(const Row& row) const {
  return {.number = row.index, .size = ranks_, .slice = row.part_words};
}

std::vector<KnownAnswer> LinkCollectiveTrial::answers(const Row& row, int repeat) const {
  const std::uint64_t in = row.part_words * KnownAnswer::parts_put_in(collective_, ranks_),
                      out = row.part_words * KnownAnswer::parts_received(collective_, ranks_);
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  std::vector<KnownAnswer> answers;
  for (std::uint64_t slot = 0; slot < number(row.count); ++slot) {
    const auto seed = [=, run_seed = bench_.environment().seed, trial = trial_, index = row.index](int from,
                                                                                                   int to) {
      return link_seed(run_seed, {number(trial), index, number(repeat), slot, number(from), number(to)});
    };
    answers.push_back({.kind = collective_,
                       .round = round_of(row),
                       .rank = self_,
                       .part_words = row.part_words,
                       .send = bench_.outgoing(bench_.bytes()).data + slot * in,
                       .receive = bench_.incoming(bench_.bytes()).data + slot * out,
                       .seed = seed});
  }
  return answers;
}

Result<LinkCollectiveOutcome> LinkCollectiveTrial::make() {
  EGT_TRY_ASSIGN(const PairPlan plan, agree_on_plan());
  changes_ = true;
  std::vector<double> own;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const Row row = row_of(i, plan.rows[i].bytes, std::min(plan.rows[i].count, max_in_row));
    if (!outcome_.sizes.empty() && outcome_.sizes.back().bytes == bytes_of(row)) continue;
    EGT_TRY_ASSIGN(const double seconds, measure(row, plan.repeats));
    outcome_.sizes.push_back({.bytes = bytes_of(row), .seconds = 0});
    own.push_back(seconds);
  }
  EGT_TRY_ASSIGN(const auto means, share_means(own));
  for (std::size_t i = 0; i < means.size(); ++i) outcome_.sizes[i].seconds = means[i];
  outcome_.repeats = plan.repeats;
  EGT_TRY(judge());
  return std::move(outcome_);
}

/// Uses the slowest rank's first measurements, so that all ranks have the same plan.
Result<PairPlan> LinkCollectiveTrial::agree_on_plan() {
  std::array<double, 2> own{};
  const std::uint64_t sizes[] = {word * ranks(), std::min(ready_bytes, options_.size)};
  constexpr int probe_repeats = 2;        // the first repeat opens the connections
  constexpr std::uint64_t probes = 1000;  // row numbers of probes, different from those of sizes
  for (std::size_t i = 0; i < own.size(); ++i) {
    EGT_TRY_ASSIGN(own[i], measure(row_of(probes + i, sizes[i], 1), probe_repeats));
  }
  EGT_TRY_ASSIGN(const auto all, share_(own));
  for (std::size_t i = 0; i < all.size(); ++i) own[i % own.size()] = std::max(own[i % own.size()], all[i]);
  constexpr double shortest = 1e-9;
  return plan_pair(options_, limits_,
                   {.min_seconds = own[0],
                    .bytes_per_second = static_cast<double>(sizes[1]) / std::max(own[1], shortest)});
}

Result<double> LinkCollectiveTrial::measure(const Row& row, int repeats) {
  std::vector<KnownAnswer> row_answers;
  const auto each = [&](const auto& call) -> Status {
    for (const KnownAnswer& answer : row_answers) EGT_TRY(call(answer));
    return {};
  };
  Stream& stream = bench_.stream();
  EGT_TRY_ASSIGN(
      const auto measured,
      bench_.measure(
          {.repeats = repeats,
           .transfers = row.count,
           .reports = reports_of(ranks_),
           .prepare = [&](int repeat, double) -> Status {
             row_answers = answers(row, repeat);
             EGT_TRY(each([&](auto& answer) { return answer.fill(bench_.device(), stream); }));
             EGT_TRY(
                 bench_.hold(std::min((row.count + 1) * LinkContext::call_ms, LinkContext::longest_hold_ms)));
             return bench_.align_with_all();
           },
           .move =
               [&] { return each([&](auto& answer) { return answer.run(bench_.communicator(), stream); }); },
           .verify = [&](int) -> Status {
             if (changes_) EGT_TRY(injections_.change_received(trial_, -1, received(row), stream));
             return each(
                 [&](auto& answer) { return answer.verify(bench_.device(), bench_.report(0), stream); });
           }}));
  bench_.count_verified(received(row).bytes() * static_cast<std::uint64_t>(repeats));
  rows_.push_back(row);
  reported_.emplace_back(&bench_.reported(0), &bench_.reported(0) + reports_of(ranks_));
  for (const Mismatches& found : reported_.back()) outcome_.own_wrong_words += found.count;
  return timing_of(seconds_of(measured)).median;
}

Result<std::vector<double>> LinkCollectiveTrial::share_means(const std::vector<double>& own) {
  EGT_TRY_ASSIGN(const auto all, share_(own));
  std::vector<double> means(own.size());
  for (std::size_t i = 0; i < all.size(); ++i) means[i % own.size()] += all[i] / ranks_;
  return means;
}

/// Gathers all ranks' reports for the first size at which any rank found a mismatch.
Status LinkCollectiveTrial::judge() {
  const auto own = std::find_if(reported_.begin(), reported_.end(), [](const auto& reported) {
    return std::any_of(reported.begin(), reported.end(),
                       [](const Mismatches& found) { return found.count > 0; });
  });
  const std::array<double, 1> first = {static_cast<double>(own - reported_.begin())};
  EGT_TRY_ASSIGN(const auto firsts, share_(first));
  const auto row = static_cast<std::size_t>(*std::min_element(firsts.begin(), firsts.end()));
  if (row == reported_.size()) return {};
  const std::size_t count = reports_of(ranks_);
  std::vector<Mismatches> all(count * ranks());
  EGT_TRY(bench_.gather(reported_[row].data(), all.data(), count * sizeof(Mismatches)));
  std::vector<RankReports> reports;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    reports.push_back(rank_reports(all.data() + rank * count, ranks_));
  outcome_.wrong_size = bytes_of(rows_[row]);
  outcome_.findings = collective_ == CollectiveKind::all_to_all
                          ? judge_all_to_all(reports)
                          : judge_round(round_of(rows_[row]), std::move(reports));
  return {};
}

}  // namespace egt
