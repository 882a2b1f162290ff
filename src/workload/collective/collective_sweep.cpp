#include "workload/collective/collective_sweep.hpp"

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
constexpr std::uint64_t probe_bytes = 1'000'000;
constexpr int most_in_row = 16;  ///< each has patterns of its own, for every pair of ranks
/// Parts begin at multiples of as many words, where they are long enough: kernels are fastest so.
constexpr std::uint64_t part_grain = 64;

std::byte* at(WordsView words, std::uint64_t word_offset) {
  return reinterpret_cast<std::byte*>(words.data + word_offset);
}

WordsView part(WordsView words, std::uint64_t first, std::uint64_t count) {
  return {words.data + first, count};
}

/// Each block is of one rank for another: the two of them, and where several blocks have a rank in common
/// that one, by majority.
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
                                         LinkCollective collective, const LinksOptions& options,
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

std::uint64_t LinkCollectiveTrial::words_in(const Row& row) const {
  return row.part_words * (collective_ == LinkCollective::all_gather || !is_split() ? 1 : ranks());
}

std::uint64_t LinkCollectiveTrial::words_out(const Row& row) const {
  return row.part_words * (collective_ == LinkCollective::reduce_scatter || !is_split() ? 1 : ranks());
}

CollectiveRound LinkCollectiveTrial::round_of(const Row& row) const {
  return {.number = row.index, .size = ranks_, .slice = row.part_words};
}

std::uint64_t LinkCollectiveTrial::seed(const Row& row, int repeat, int slot, int from, int to) const {
  const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
  return link_seed(bench_.environment().seed,
                   {number(trial_), row.index, number(repeat), number(slot), number(from), number(to)});
}

Result<LinkCollectiveOutcome> LinkCollectiveTrial::make() {
  EGT_TRY_ASSIGN(const PairPlan plan, agree_on_plan());
  changes_ = true;
  std::vector<double> own;
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const Row row = row_of(i, plan.rows[i].bytes, std::min(plan.rows[i].count, most_in_row));
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

/// By the slowest rank's first figures, the same on all.
Result<PairPlan> LinkCollectiveTrial::agree_on_plan() {
  std::array<double, 2> own{};
  const std::uint64_t sizes[] = {word * ranks(), std::min(probe_bytes, options_.size)};
  constexpr int probe_repeats = 2;        // the first one connects all
  constexpr std::uint64_t probes = 1000;  // their numbers are no size's
  for (std::size_t i = 0; i < own.size(); ++i) {
    EGT_TRY_ASSIGN(own[i], measure(row_of(probes + i, sizes[i], 1), probe_repeats));
  }
  EGT_TRY_ASSIGN(const auto all, share_(own));
  for (std::size_t i = 0; i < all.size(); ++i) own[i % own.size()] = std::max(own[i % own.size()], all[i]);
  constexpr double shortest = 1e-9;
  return plan_pair(options_, limits_,
                   {.least_seconds = own[0],
                    .bytes_per_second = static_cast<double>(sizes[1]) / std::max(own[1], shortest)});
}

Result<double> LinkCollectiveTrial::measure(const Row& row, int repeats) {
  std::vector<double> seconds;
  EGT_TRY(bench_.reset_reports(ranks() + 1));
  for (int repeat = 0; repeat < repeats; ++repeat) {
    EGT_TRY(fill(row, repeat));
    EGT_TRY(bench_.hold(std::min((row.count + 1) * LinkContext::call_ms, LinkContext::longest_hold_ms)));
    EGT_TRY(bench_.align_with_all());
    EGT_TRY(bench_.start_clock());
    for (int slot = 0; slot < row.count; ++slot) EGT_TRY(run(row, slot));
    EGT_TRY(bench_.stop_clock());
    EGT_TRY(verify(row, repeat));
    EGT_TRY(bench_.wait());
    EGT_TRY_ASSIGN(const double time, bench_.clock_seconds());
    seconds.push_back(time / row.count);
    EGT_TRY(bench_.check_stop());
  }
  EGT_TRY(bench_.fetch_reports(ranks() + 1));
  EGT_TRY(bench_.wait());
  bench_.count_verified(words_out(row) * word * static_cast<std::uint64_t>(row.count * repeats));
  keep_reports(row);
  return timing_of(std::move(seconds)).median;
}

void LinkCollectiveTrial::keep_reports(const Row& row) {
  rows_.push_back(row);
  std::optional<RankReports>& kept = wrong_.emplace_back();
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i <= ranks(); ++i) wrong += bench_.told(i).count;
  outcome_.own_wrong_words += wrong;
  if (wrong == 0) return;
  kept.emplace(ranks_);
  switch (collective_) {
    case LinkCollective::all_reduce:
      kept->all_reduce = bench_.told(0);
      break;
    case LinkCollective::reduce_scatter:
      kept->reduce_scatter = bench_.told(0);
      kept->put_in = bench_.told(1);
      break;
    case LinkCollective::all_gather:
    case LinkCollective::all_to_all:
      for (std::size_t rank = 0; rank < ranks(); ++rank) kept->blocks[rank] = bench_.told(rank);
      break;
  }
}

/// What is received into holds other words before. An all-reduce is made in place, in what is received.
Status LinkCollectiveTrial::fill(const Row& row, int repeat) {
  Device& device = bench_.device();
  Stream& stream = bench_.stream();
  const auto count = static_cast<std::uint64_t>(row.count);
  const std::uint64_t in = words_in(row), out = words_out(row);
  const WordsView outgoing = bench_.outgoing(in * count * word),
                  incoming = bench_.incoming(out * count * word);
  const bool sums =
      collective_ == LinkCollective::all_reduce || collective_ == LinkCollective::reduce_scatter;
  if (is_split())
    EGT_TRY(device.fill(incoming, {.kind = PatternKind::random, .seed = ~seed(row, repeat, -1, self_, self_)},
                        stream));
  for (int slot = 0; slot < row.count; ++slot)
    for (int to = 0; static_cast<std::uint64_t>(to) * row.part_words < in; ++to) {
      const std::uint64_t first =
          static_cast<std::uint64_t>(slot) * in + static_cast<std::uint64_t>(to) * row.part_words;
      Pattern pattern{.kind = PatternKind::random, .seed = seed(row, repeat, slot, self_, to)};
      if (sums)
        pattern = {.kind = PatternKind::contribution,
                   .parameter = static_cast<std::uint32_t>(round_of(row).field_of(self_)),
                   .seed = seed(row, repeat, slot, -1, to)};
      EGT_TRY(device.fill(part(is_split() ? outgoing : incoming, first, row.part_words), pattern, stream));
    }
  return {};
}

Status LinkCollectiveTrial::run(const Row& row, int slot) {
  Communicator& communicator = bench_.communicator();
  const auto place = static_cast<std::uint64_t>(slot);
  const std::uint64_t in = words_in(row), out = words_out(row);
  const auto count = static_cast<std::uint64_t>(row.count);
  std::byte* const send = at(bench_.outgoing(in * count * word), place * in);
  std::byte* const receive = at(bench_.incoming(out * count * word), place * out);
  switch (collective_) {
    case LinkCollective::all_reduce:
      return communicator.all_reduce(receive, row.part_words, ElementType::f32, bench_.stream());
    case LinkCollective::all_gather:
      return communicator.all_gather(send, receive, row.part_words * word, bench_.stream());
    case LinkCollective::reduce_scatter:
      return communicator.reduce_scatter(send, receive, row.part_words, ElementType::f32, bench_.stream());
    case LinkCollective::all_to_all:
      return all_to_all(communicator, send, receive, row.part_words * word, bench_.stream());
  }
  return Status(StatusCode::internal, "there is no such collective");
}

Status LinkCollectiveTrial::verify(const Row& row, int repeat) {
  Device& device = bench_.device();
  Stream& stream = bench_.stream();
  const std::uint64_t in = words_in(row), out = words_out(row);
  const auto count = static_cast<std::uint64_t>(row.count);
  const WordsView outgoing = bench_.outgoing(in * count * word),
                  incoming = bench_.incoming(out * count * word);
  if (changes_) EGT_TRY(injections_.change_received(trial_, -1, incoming, stream));
  for (int slot = 0; slot < row.count; ++slot) {
    const std::uint64_t place = static_cast<std::uint64_t>(slot);
    if (collective_ == LinkCollective::all_reduce || collective_ == LinkCollective::reduce_scatter) {
      const int to = is_split() ? self_ : 0;
      const Pattern sum{.kind = PatternKind::contribution_sum,
                        .parameter = static_cast<std::uint32_t>(round_of(row).fields()),
                        .seed = seed(row, repeat, slot, -1, to)};
      EGT_TRY(device.verify(part(incoming, place * out, row.part_words), sum, bench_.report(0), stream));
      for (int owner = 0; is_split() && owner < ranks_; ++owner)
        EGT_TRY(device.verify(
            part(outgoing, place * in + static_cast<std::uint64_t>(owner) * row.part_words, row.part_words),
            {.kind = PatternKind::contribution,
             .parameter = static_cast<std::uint32_t>(round_of(row).field_of(self_)),
             .seed = seed(row, repeat, slot, -1, owner)},
            bench_.report(1), stream));
      continue;
    }
    for (int from = 0; from < ranks_; ++from) {
      const int to = collective_ == LinkCollective::all_gather ? 0 : self_;
      EGT_TRY(device.verify(
          part(incoming, place * out + static_cast<std::uint64_t>(from) * row.part_words, row.part_words),
          {.kind = PatternKind::random, .seed = seed(row, repeat, slot, from, to)},
          bench_.report(static_cast<std::size_t>(from)), stream));
    }
  }
  return {};
}

Result<std::vector<double>> LinkCollectiveTrial::share_means(const std::vector<double>& own) {
  EGT_TRY_ASSIGN(const auto all, share_(own));
  std::vector<double> means(own.size());
  for (std::size_t i = 0; i < all.size(); ++i) means[i % own.size()] += all[i] / ranks_;
  return means;
}

/// All ranks' reports of the first size at which any of them found something wrong.
Status LinkCollectiveTrial::judge() {
  const auto own = std::find_if(wrong_.begin(), wrong_.end(), [](auto& one) { return one.has_value(); });
  const std::array<double, 1> first = {static_cast<double>(own - wrong_.begin())};
  EGT_TRY_ASSIGN(const auto firsts, share_(first));
  const auto row = static_cast<std::size_t>(*std::min_element(firsts.begin(), firsts.end()));
  if (row == wrong_.size()) return {};
  const RankReports mine = wrong_[row].value_or(RankReports(ranks_));
  std::vector<Mismatches> told = {mine.all_reduce, mine.reduce_scatter, mine.put_in}, all;
  told.insert(told.end(), mine.blocks.begin(), mine.blocks.end());
  all.resize(told.size() * ranks());
  EGT_TRY(bench_.gather(told.data(), all.data(), told.size() * sizeof(Mismatches)));
  std::vector<RankReports> reports;
  for (std::size_t rank = 0; rank < ranks(); ++rank) {
    const Mismatches* const of_rank = all.data() + rank * told.size();
    RankReports& one = reports.emplace_back(ranks_);
    one.all_reduce = of_rank[0];
    one.reduce_scatter = of_rank[1];
    one.put_in = of_rank[2];
    std::copy_n(of_rank + 3, ranks(), one.blocks.begin());
  }
  outcome_.wrong_size = bytes_of(rows_[row]);
  outcome_.findings = collective_ == LinkCollective::all_to_all
                          ? judge_all_to_all(reports)
                          : judge_round(round_of(rows_[row]), std::move(reports));
  return {};
}

}  // namespace egt
