#include "workload/collective/collective_judgement.hpp"

#include <iterator>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

using Role = CollectiveFinding::Role;
using Findings = std::vector<CollectiveFinding>;
using Ranks = std::vector<int>;
using Reports = std::vector<const Mismatches*>;  ///< reports of all ranks on the same data

Ranks wrong_among(const Reports& reports) {
  Ranks wrong;
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    if (reports[rank]->count > 0) wrong.push_back(static_cast<int>(rank));
  return wrong;
}

const Mismatches& report_of(const Reports& reports, int rank) {
  return *reports[static_cast<std::size_t>(rank)];
}

bool alike(const Mismatches& a, const Mismatches& b) {
  return a.count == b.count && a.first_index == b.first_index && a.xor_or == b.xor_or &&
         a.xor_and == b.xor_and;
}

bool all_alike(const Reports& reports, const Ranks& wrong) {
  return std::all_of(wrong.begin(), wrong.end(), [&](int rank) {
    return alike(report_of(reports, rank), report_of(reports, wrong.front()));
  });
}

bool each_in_its_own_way(const Reports& reports, const Ranks& wrong) {
  for (std::size_t i = 0; i < wrong.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (alike(report_of(reports, wrong[i]), report_of(reports, wrong[k]))) return false;
  return true;
}

bool is_minority(const Ranks& ranks, int size) {
  return ranks.size() == 1 || 2 * ranks.size() < static_cast<std::size_t>(size);
}

/// The whole number that an fp32 word represents exactly; std::nullopt if the bit fields cannot produce it.
std::optional<std::uint32_t> whole_number(std::uint32_t word) {
  const float value = float_from_bits(word);
  if (!(value >= 0 && value < 16777216.0f)) return std::nullopt;
  const auto number = static_cast<std::uint32_t>(value);
  return float_bits(static_cast<float>(number)) == word ? std::optional(number) : std::nullopt;
}

/// Bits in which the samples differ, of the sum's 24; std::nullopt if a sample is not a valid sum.
std::optional<std::uint32_t> wrong_bits(const Mismatches& found) {
  std::uint32_t bits = 0;
  const auto taken = std::min<std::uint64_t>(found.samples, Mismatches::max_samples);
  for (std::uint64_t i = 0; i < taken; ++i) {
    const auto expected = whole_number(found.sample[i].expected),
               actual = whole_number(found.sample[i].actual);
    if (!expected || !actual) return std::nullopt;
    bits |= *expected ^ *actual;
  }
  return bits;
}

/// The only rank whose bit field is wrong in all these sums, if there is one.
std::optional<int> only_source(const CollectiveRound& round, const Reports& reports, const Ranks& wrong) {
  std::uint32_t bits = 0;
  for (const int rank : wrong) {
    const auto more = wrong_bits(report_of(reports, rank));
    if (!more) return std::nullopt;
    bits |= *more;
  }
  constexpr std::uint32_t mask = (1u << contribution_field_bits) - 1;
  for (int field = 0; bits != 0 && field < round.fields(); ++field)
    if ((bits & ~(mask << contribution_field_bits * static_cast<std::uint32_t>(field))) == 0)
      return round.source_of(field);
  return std::nullopt;
}

CollectiveFinding finding_of(CollectiveKind kind, const Mismatches& shown, std::uint64_t first_element = 0) {
  CollectiveFinding finding;
  finding.kind = kind;
  finding.sample = lowest_sample(shown);
  finding.sample.index += first_element;
  finding.count = shown.count;
  return finding;
}

CollectiveFinding blame(CollectiveFinding finding, Role role, int rank, Blame blame, std::string where) {
  finding.role = role;
  finding.rank = rank;
  finding.blame = blame;
  finding.where = std::move(where);
  return finding;
}

CollectiveFinding suspect(CollectiveFinding finding, Ranks ranks, std::string where) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  finding.suspects = std::move(ranks);
  finding.where = std::move(where);
  return finding;
}

/// A result that all ranks must receive identically.
struct Shared {
  CollectiveKind kind;
  int sender = -1;  ///< rank that sent the broadcast or block
  std::uint64_t first_element = 0;
  Reports reports;

  CollectiveFinding seen_by(int rank) const {
    return finding_of(kind, report_of(reports, rank), first_element);
  }
  std::string element(const CollectiveFinding& finding) const {
    const std::string block =
        kind == CollectiveKind::all_gather ? fmt::format(", in the block of rank {}", sender) : "";
    return fmt::format("element {} of the {}{}", finding.sample.index, to_string(kind), block);
  }
};

/// Finds the cause if all ranks received the same wrong data.
CollectiveFinding blame_origin(const CollectiveRound& round, const Shared& shared, const Ranks& wrong) {
  CollectiveFinding finding = shared.seen_by(wrong.front());
  const std::string where = shared.element(finding) + ", on all ranks alike";
  if (shared.sender >= 0)
    return blame(finding, Role::source, shared.sender, Blame::certain,
                 fmt::format("{}, as sent by rank {}", where, shared.sender));
  const auto source = only_source(round, shared.reports, wrong);
  if (!source) return suspect(finding, wrong, where);
  return blame(finding, Role::source, *source, finding.count > 1 ? Blame::certain : Blame::majority,
               fmt::format("{}, in the part of rank {}", where, *source));
}

CollectiveFinding name_suspects(const Shared& shared, Ranks wrong, int size) {
  CollectiveFinding finding = shared.seen_by(wrong.front());
  std::string where =
      fmt::format("{}, as received by ranks {}", shared.element(finding), fmt::join(wrong, ", "));
  const bool sender_is_right =
      shared.sender >= 0 && std::find(wrong.begin(), wrong.end(), shared.sender) == wrong.end();
  if (sender_is_right && wrong.size() + 1 == static_cast<std::size_t>(size) &&
      all_alike(shared.reports, wrong)) {
    finding.role = Role::source;
    finding.rank = shared.sender;
  }
  if (shared.sender >= 0) {
    where += fmt::format(" from rank {}", shared.sender);
    wrong.push_back(shared.sender);
  }
  return suspect(finding, std::move(wrong), std::move(where));
}

void judge_shared(const CollectiveRound& round, const Shared& shared, Findings& findings) {
  const Ranks wrong = wrong_among(shared.reports);
  if (wrong.empty()) return;
  if (is_minority(wrong, round.size) && each_in_its_own_way(shared.reports, wrong)) {
    for (const int rank : wrong) {
      CollectiveFinding finding = shared.seen_by(rank);
      std::string where = fmt::format("{}, as received by rank {}", shared.element(finding), rank);
      findings.push_back(blame(finding, Role::receiver, rank, Blame::majority, std::move(where)));
    }
  } else if (wrong.size() == shared.reports.size() && all_alike(shared.reports, wrong)) {
    findings.push_back(blame_origin(round, shared, wrong));
  } else {
    findings.push_back(name_suspects(shared, wrong, round.size));
  }
}

std::string element_of_slice(const CollectiveFinding& finding, int owner) {
  return fmt::format("element {} of rank {}'s slice of the reduce-scatter", finding.sample.index, owner);
}

/// Blames ranks with wrong send buffers. Removes the slices that this explains from `wrong`.
void judge_put_in(const CollectiveRound& round, const std::vector<RankReports>& reports,
                  const Reports& slices, Ranks& wrong, Findings& findings) {
  for (int rank = 0; rank < round.size; ++rank) {
    const Mismatches& put_in = reports[static_cast<std::size_t>(rank)].put_in;
    if (put_in.count == 0) continue;
    const auto explained = std::stable_partition(wrong.begin(), wrong.end(), [&](int owner) {
      return only_source(round, slices, {owner}).value_or(rank) != rank;
    });
    const bool shows = explained != wrong.end();
    CollectiveFinding finding =
        finding_of(CollectiveKind::reduce_scatter, shows ? report_of(slices, *explained) : put_in);
    finding.count = put_in.count;
    std::string where = shows ? element_of_slice(finding, *explained) : "reduce-scatter";
    where += fmt::format(", as injected by rank {}", rank);
    findings.push_back(blame(finding, Role::source, rank, Blame::certain, std::move(where)));
    wrong.erase(explained, wrong.end());
  }
}

void judge_reduce_scatter(const CollectiveRound& round, const std::vector<RankReports>& reports,
                          Findings& findings) {
  Reports slices;
  for (const RankReports& one : reports) slices.push_back(&one.reduce_scatter);
  Ranks wrong = wrong_among(slices);
  judge_put_in(round, reports, slices, wrong, findings);
  if (wrong.empty()) return;
  CollectiveFinding first = finding_of(CollectiveKind::reduce_scatter, report_of(slices, wrong.front()));
  const std::string where = element_of_slice(first, wrong.front());
  const auto source = wrong.size() > 1 ? only_source(round, slices, wrong) : std::nullopt;
  if (source) {
    findings.push_back(blame(first, Role::source, *source, Blame::majority,
                             fmt::format("{}, in the part of rank {}; wrong in its part too: ranks {}", where,
                                         *source, fmt::join(wrong, ", "))));
  } else if (is_minority(wrong, round.size)) {
    for (const int owner : wrong) {
      CollectiveFinding finding = finding_of(CollectiveKind::reduce_scatter, report_of(slices, owner));
      std::string element = element_of_slice(finding, owner);
      findings.push_back(blame(finding, Role::receiver, owner, Blame::majority, std::move(element)));
    }
  } else {
    findings.push_back(
        suspect(first, wrong, fmt::format("{}; wrong: those of ranks {}", where, fmt::join(wrong, ", "))));
  }
}

/// Merges `more`, from another block, into the finding for the same rank, role and blame, if one exists.
void add_block(Findings& findings, CollectiveFinding more) {
  const auto same = std::find_if(findings.begin(), findings.end(), [&](const CollectiveFinding& one) {
    return one.role == more.role && one.rank == more.rank && one.blame == more.blame;
  });
  if (same == findings.end()) {
    findings.push_back(std::move(more));
    return;
  }
  same->count += more.count;
  Ranks suspects;
  std::set_union(same->suspects.begin(), same->suspects.end(), more.suspects.begin(), more.suspects.end(),
                 std::back_inserter(suspects));
  same->suspects = std::move(suspects);
}

Findings judge_all_gather(const CollectiveRound& round, const std::vector<RankReports>& reports) {
  Findings merged;
  for (int rank = 0; rank < round.size; ++rank) {
    const auto block = static_cast<std::size_t>(rank);
    Shared shared{CollectiveKind::all_gather, rank, block * round.slice, {}};
    for (const RankReports& one : reports) shared.reports.push_back(&one.blocks[block]);
    Findings found;
    judge_shared(round, shared, found);
    for (CollectiveFinding& finding : found) add_block(merged, std::move(finding));
  }
  return merged;
}

bool is_whole(const RankReports& one) {
  return is_plausible(one.all_reduce) && is_plausible(one.broadcast) && is_plausible(one.reduce_scatter) &&
         is_plausible(one.put_in) && std::all_of(one.blocks.begin(), one.blocks.end(), is_plausible);
}

/// Finds ranks whose report was corrupted in transit. Such a report then counts as one without mismatches.
void judge_exchange(std::vector<RankReports>& reports, Findings& findings) {
  Ranks damaged;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (is_whole(reports[rank])) continue;
    damaged.push_back(static_cast<int>(rank));
    reports[rank] = RankReports(static_cast<int>(reports.size()));
  }
  if (damaged.empty()) return;
  CollectiveFinding finding;
  finding.kind = CollectiveKind::all_gather;
  finding.count = damaged.size();
  const std::string where = fmt::format("the reports of ranks {}, as gathered", fmt::join(damaged, ", "));
  Ranks all(reports.size());
  std::iota(all.begin(), all.end(), 0);
  findings.push_back(suspect(finding, all, where));
  findings.back().in_own_copy = true;
}

}  // namespace

const char* to_string(CollectiveKind kind) {
  constexpr const char* names[] = {"all-reduce", "broadcast", "reduce-scatter", "all-gather", "all-to-all"};
  return names[static_cast<std::size_t>(kind)];
}

double bus_factor(CollectiveKind kind, int ranks) {
  if (kind == CollectiveKind::broadcast) return 1;
  const double n = ranks;
  return (kind == CollectiveKind::all_reduce ? 2 : 1) * (n - 1) / n;
}

void show_finding(Fault& fault, const CollectiveFinding& finding) {
  fault.rank = finding.blame == Blame::ambiguous ? -1 : finding.rank;
  fault.where = finding.where;
  fault.offset = finding.sample.index * sizeof(std::uint32_t);
  show_difference(fault, finding.sample.expected, finding.sample.actual);
  fault.count = finding.count;
  fault.blame = finding.blame;
  fault.suspects = finding.suspects;
}

std::vector<CollectiveFinding> judge_round(const CollectiveRound& round, std::vector<RankReports> reports) {
  Findings findings;
  judge_exchange(reports, findings);
  Shared sum{CollectiveKind::all_reduce, -1, 0, {}};
  Shared message{CollectiveKind::broadcast, round.root(), 0, {}};
  for (const RankReports& one : reports) {
    sum.reports.push_back(&one.all_reduce);
    message.reports.push_back(&one.broadcast);
  }
  judge_shared(round, sum, findings);
  judge_shared(round, message, findings);
  judge_reduce_scatter(round, reports, findings);
  for (CollectiveFinding& finding : judge_all_gather(round, reports)) findings.push_back(std::move(finding));
  return findings;
}

bool CollectiveIncidents::had_its_chance(const Incident& incident, const CollectiveRound& round) {
  if (incident.role != Role::source) return true;
  switch (incident.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce_scatter:
      return round.contributes(incident.rank);
    case CollectiveKind::broadcast:
      return round.root() == incident.rank;
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
      return true;
  }
  return true;
}

std::vector<CollectiveFinding> CollectiveIncidents::begin(const CollectiveRound& round,
                                                          const std::vector<CollectiveFinding>& found) {
  std::vector<CollectiveFinding> fresh;
  std::vector<Incident> open;
  for (const CollectiveFinding& finding : found) {
    const Incident incident{finding.kind, finding.role, finding.rank};
    if (std::find(open_.begin(), open_.end(), incident) == open_.end()) fresh.push_back(finding);
    open.push_back(incident);
  }
  for (const Incident& incident : open_)
    if (!had_its_chance(incident, round) && std::find(open.begin(), open.end(), incident) == open.end())
      open.push_back(incident);
  open_ = std::move(open);
  return fresh;
}

}  // namespace egt
