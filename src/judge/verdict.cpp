#include "judge/verdict.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/status.hpp"
#include "egt/core/units.hpp"
#include "judge/device_use.hpp"
#include "judge/evidence.hpp"
#include "judge/injection_match.hpp"
#include "judge/record_schema.hpp"
#include "judge/result.hpp"

namespace egt {
namespace {

constexpr std::size_t max_reasons = 20;
constexpr double min_share = 0.99;  ///< min verified share for "verified"
constexpr const char* injected_reason =
    "faults were injected with --inject: this verdict says nothing about the hardware";

/// Records sorted by kind.
struct Evidence {
  std::vector<const Record*> faults, losses, findings, restarts;
  std::vector<ByRank> parts;  ///< of the run: one, plus one per resume
  int size = 0;               ///< expected number of ranks
  std::set<int> lost;
  std::set<int> failed_devices;  ///< ranks with a fault of the kind device-error

  /// Records of the run's last part, which determine how the run ended.
  const ByRank& ending() const {
    static const ByRank none;
    return parts.empty() ? none : parts.back();
  }
};

Evidence sort_evidence(const std::vector<Record>& records) {
  Evidence evidence{.faults = faults_of(records),
                    .losses = losses_of(records),
                    .findings = findings_of(records),
                    .restarts = restarts_of(records),
                    .parts = parts_of(records),
                    .size = 0,
                    .lost = {},
                    .failed_devices = {}};
  for (const Record& record : records) {
    if (record.kind == RecordKind::start)
      evidence.size = std::max(evidence.size, value_at<int>(record.body, "size").value_or(0));
    evidence.size = std::max(evidence.size, record.rank + 1);
  }
  for (const Record* loss : evidence.losses)
    evidence.lost.insert(value_at<int>(loss->body, "rank").value_or(-1));
  for (const Record* fault : evidence.faults)
    if (text_at(fault->body, "kind") == "device-error")
      evidence.failed_devices.insert(value_at<int>(fault->body, "rank").value_or(-1));
  return evidence;
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::string step_text(std::int64_t step) {
  return step < 0 ? "" : fmt::format(", step {}", step);
}

/// The rank of a fault, if exactly one is accused.
std::optional<int> accused_rank(const Json& fault, const std::set<int>& accused) {
  const std::optional<int> rank = value_at<int>(fault, "rank");
  return rank || accused.size() != 1 ? rank : std::optional(*accused.begin());
}

/// The accused device, or its rank if its start record is missing.
std::string device_text(const Evidence& evidence, const Json& fault, const std::set<int>& accused) {
  const std::optional<int> rank = accused_rank(fault, accused);
  if (!rank) return "rank not known";
  const std::string host = text_at(fault, "hostname");
  for (const ByRank& part : evidence.parts)
    if (const auto of = part.find(*rank); of != part.end() && of->second.start)
      return device_identity(member(of->second.start_body(), "identity"), !host.empty());
  return fmt::format("rank {}{}", *rank, host.empty() ? "" : " on " + host);
}

/// "GPU 1, UUID GPU-1234: memory fault in block 3, 8 elements; rank 1, step 40"
std::string fault_reason(const Evidence& evidence, const Record& record, const std::set<int>& accused) {
  const Json& fault = record.body;
  std::string text =
      fmt::format("{}: {} fault", device_text(evidence, fault, accused), text_at(fault, "kind"));
  if (!text_at(fault, "where").empty()) text += fmt::format(" in {}", text_at(fault, "where"));
  const auto count = value_at<std::uint64_t>(fault, "count").value_or(1);
  if (count > 1) text += fmt::format(", {} elements", count);
  std::vector<std::string> details;
  if (const auto rank = accused_rank(fault, accused)) details.push_back(fmt::format("rank {}", *rank));
  // The record's own step is that of the check, which may run later.
  if (const auto step = value_at<std::int64_t>(fault, "step").value_or(record.step); step >= 0)
    details.push_back(fmt::format("step {}", step));
  return details.empty() ? text : fmt::format("{}; {}", text, fmt::join(details, ", "));
}

/// Faults of the same ranks and kind share one reason.
struct EqualFaults {
  std::set<int> accused;
  std::string kind;
  bool has_no_rank = false;
  std::string first = {};  ///< reason of the first fault
  std::uint64_t more = 0;
};

std::vector<EqualFaults> equal_faults(const Evidence& evidence, const std::set<int>& idle) {
  std::vector<EqualFaults> all;
  const auto like = [&](const Json& fault) -> EqualFaults& {
    const std::set<int> accused = accused_ranks(fault, idle);
    const std::string kind = text_at(fault, "kind");
    // Repeats of a fault without a rank list no suspects.
    const auto found = std::find_if(all.begin(), all.end(), [&](const EqualFaults& one) {
      return one.kind == kind && (one.accused == accused || (accused.empty() && one.has_no_rank));
    });
    return found != all.end()
               ? *found
               : all.emplace_back(EqualFaults{
                     .accused = accused, .kind = kind, .has_no_rank = !value_at<int>(fault, "rank")});
  };
  for (const Record* fault : evidence.faults) {
    EqualFaults& faults = like(fault->body);
    if (faults.first.empty())
      faults.first = fault_reason(evidence, *fault, faults.accused);
    else
      ++faults.more;
  }
  for (const ByRank& part : evidence.parts)
    for (const auto& [number, rank] : part)
      for (const Json& repeat : member(rank.last_body(), "fault_repeats")) {
        EqualFaults& faults = like(repeat);
        if (faults.first.empty()) {
          faults.first = device_text(evidence, repeat, faults.accused);
          if (const auto of = accused_rank(repeat, faults.accused))
            faults.first += fmt::format("; rank {}", *of);
        }
        faults.more += value_at<std::uint64_t>(repeat, "count").value_or(0);
      }
  return all;
}

std::string error_reason(int rank, const Record& end) {
  const Json& error = member(end.body, "error");
  const std::string what = text_at(error, "what");
  return fmt::format("rank {}{}: {}: {}", rank, step_text(end.step),
                     text_at(error, "code").empty() ? "error" : text_at(error, "code"),
                     what.empty() ? "no details" : what);
}

std::optional<StatusCode> error_code(const Json& body) {
  return parse_status_code(text_at(member(body, "error"), "code"));
}

/// True if the rank ended with a device error. It counts as a fault even if the fault record is missing.
bool is_device_error(const Record& end) {
  return error_code(end.body) == StatusCode::device_error;
}

std::vector<std::string> fault_reasons(const Evidence& evidence, const std::set<int>& idle = {}) {
  std::vector<std::string> reasons;
  for (const EqualFaults& faults : equal_faults(evidence, idle))
    reasons.push_back(faults.more > 0 ? fmt::format("{}; and {}", faults.first,
                                                    counted(faults.more, "more " + faults.kind + " fault"))
                                      : faults.first);
  for (const ByRank& part : evidence.parts)
    for (const auto& [number, rank] : part) {
      if (!rank.end) continue;
      if (evidence.faults.empty() && text_at(rank.end->body, "reason") == "fault")
        reasons.push_back(fmt::format("rank {} ended because of a fault", number));
      if (is_device_error(*rank.end) && !evidence.failed_devices.contains(number))
        reasons.push_back(error_reason(number, *rank.end));
    }
  return reasons;
}

bool was_interrupted(const Evidence& evidence) {
  return std::any_of(evidence.ending().begin(), evidence.ending().end(), [](const auto& rank) {
    return rank.second.end && text_at(rank.second.end->body, "reason") == "signal";
  });
}

/// After lost ranks or a failed device, the remaining ranks cannot continue, which is no separate reason. The
/// failed rank's own end is covered by its fault or loss.
bool is_consequence(const Evidence& evidence, int rank, const Record& end) {
  if (is_device_error(end)) return true;
  if (evidence.losses.empty() && evidence.failed_devices.empty()) return false;
  return evidence.lost.contains(rank) || evidence.failed_devices.contains(rank) ||
         text_at(end.body, "reason") == "peer lost" || error_code(end.body) == StatusCode::aborted;
}

std::vector<std::string> errors(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const ByRank& part : evidence.parts)
    for (const auto& [number, rank] : part)
      if (rank.end && text_at(rank.end->body, "reason") == "error" &&
          !is_consequence(evidence, number, *rank.end))
        reasons.push_back(error_reason(number, *rank.end));
  return reasons;
}

std::string last_seen_text(const RankRecords& rank) {
  if (rank.late_stop) return "; " + late_stop_text(rank.late_stop->body);
  const Record* const last = rank.progress;
  if (!last) return "";
  const std::string phase = text_at(last->body, "phase");
  return fmt::format("; last seen {}{}", phase.empty() ? "" : fmt::format("in {}, ", phase),
                     last->step < 0 ? "before the first step" : fmt::format("at step {}", last->step));
}

/// Ranks without an end record in a run without reported losses.
std::vector<std::string> vanished_ranks(const Evidence& evidence) {
  std::vector<std::string> reasons;
  if (!evidence.losses.empty()) return reasons;
  for (int number = 0; number < evidence.size; ++number) {
    const auto rank = evidence.ending().find(number);
    const bool known = rank != evidence.ending().end();
    if (known && rank->second.end) continue;
    reasons.push_back(fmt::format("rank {} was lost: it left no end record{}", number,
                                  last_seen_text(known ? rank->second : RankRecords())));
  }
  return reasons;
}

/// Lost ranks, ranks without an end record, and ranks that ended with an error.
std::vector<std::string> broken_ranks(const Evidence& evidence) {
  std::vector<std::string> reasons;
  const NetworkPartition partition = find_partition(evidence.losses).value_or(NetworkPartition());
  if (!partition.losses.empty()) reasons.push_back(partition.text);
  for (const Record* loss : evidence.losses)
    if (std::find(partition.losses.begin(), partition.losses.end(), loss) == partition.losses.end())
      reasons.push_back(loss_text(loss->body));
  append(reasons, errors(evidence));
  append(reasons, vanished_ranks(evidence));
  return reasons;
}

/// A run that ended although no rank had reached its planned end.
std::vector<std::string> early_end(const Evidence& evidence) {
  const bool is_early =
      !evidence.ending().empty() &&
      std::all_of(evidence.ending().begin(), evidence.ending().end(), [](const auto& rank) {
        return rank.second.end && value_at<bool>(rank.second.end->body, "before_planned_end").value_or(false);
      });
  if (!is_early) return {};
  return {"the run ended before its planned end, for which no rank voted: a stop vote changed in transit"};
}

/// True if the part reports work left undone for a reason other than a stop.
bool has_failed(const Json& part) {
  return !member(member(part, "figures"), "undone").is_null();
}

/// Parts of the load that failed, however the run ended. A resumed run may have done undone work later, but a
/// failure remains.
std::vector<std::string> failed_parts(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const ByRank& ranks : evidence.parts)
    for (const auto& [number, rank] : ranks) {
      const bool is_ending = &ranks == &evidence.ending();
      if (is_ending && (!rank.end || is_consequence(evidence, number, *rank.end))) continue;
      for (const Json& part : member(rank.last_body(), "parts"))
        if (has_failed(part))
          reasons.push_back(fmt::format("rank {}, {}{}: {}", number, text_at(part, "name"),
                                        is_ending ? "" : ", before the run was resumed",
                                        text_at(part, "failure")));
    }
  return reasons;
}

/// Parts that did not complete their planned work.
std::vector<std::string> unfinished_parts(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const auto& [number, rank] : evidence.ending()) {
    if (!rank.end || is_consequence(evidence, number, *rank.end)) continue;
    for (const Json& part : member(rank.end->body, "parts")) {
      const Json& figures = member(part, "figures");
      const bool is_idle = value_at<bool>(figures, "planned").value_or(false) &&
                           member(figures, "mistrusted").is_null() &&
                           !any(work_from_json(member(part, "work")));
      const bool success = value_at<bool>(part, "success").value_or(false);
      if ((success && !is_idle) || has_failed(part)) continue;
      const std::string failure = success ? "nothing was verified" : text_at(part, "failure");
      reasons.push_back(fmt::format("rank {}, {}: {}", number, text_at(part, "name"),
                                    failure.empty() ? "did not do what was planned" : failure));
    }
  }
  return reasons;
}

/// Parts that ran but whose results prove nothing: "io: not a disk test (in memory: tmpfs), on ranks 0, 1".
std::vector<std::string> mistrusted_parts(const Evidence& evidence) {
  std::map<std::string, std::set<int>> ranks;
  for (const auto& [number, rank] : evidence.ending())
    for (const Json& part : member(rank.last_body(), "parts"))
      if (const std::string why = text_at(member(part, "figures"), "mistrusted"); !why.empty())
        ranks[fmt::format("{}: {}", text_at(part, "name"), why)].insert(number);
  std::vector<std::string> reasons;
  for (const auto& [reason, of] : ranks)
    reasons.push_back(
        fmt::format("{}, on rank{} {}", reason, of.size() == 1 ? "" : "s", fmt::join(of, ", ")));
  return reasons;
}

VerifiedWork work_of(const Evidence& evidence, int number) {
  VerifiedWork sum;
  for (const ByRank& part : evidence.parts)
    if (const auto rank = part.find(number); rank != part.end()) add(sum, work_in(rank->second.last_body()));
  return sum;
}

/// Kinds of work verified less than --coverage full requires, with their shares.
std::map<std::string, double> little_verified(const Evidence& evidence) {
  std::map<std::string, double> little;
  const Json shares = verified_share(evidence.parts);
  for (const auto& [kind, share] : shares.items())
    if (share.is_number() && share.get<double>() < min_share) little[kind] = share.get<double>();
  return little;
}

/// --coverage full promises that nearly all work is verified; otherwise the verdict would overstate it.
std::vector<std::string> unverified_work(const Evidence& evidence) {
  const auto covers_all = [](const auto& rank) {
    return text_at(figures_in(rank.second.last_body(), "train"), "coverage") == "full";
  };
  if (!std::any_of(evidence.ending().begin(), evidence.ending().end(), covers_all)) return {};
  std::vector<std::string> reasons;
  for (const auto& [kind, share] : little_verified(evidence))
    reasons.push_back(fmt::format("only {:.3g} % of the {} work was verified; --coverage full needs {:.0f} %",
                                  100 * share, kind, 100 * min_share));
  return reasons;
}

/// Ranks that verified nothing.
std::vector<std::string> idle_ranks(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const auto& [number, rank] : evidence.ending())
    if (rank.end && !is_consequence(evidence, number, *rank.end) && !any(work_of(evidence, number)))
      reasons.push_back(fmt::format("rank {}: no work was verified", number));
  return reasons;
}

std::vector<std::string> finding_reasons(const Evidence& evidence) {
  std::vector<std::string> reasons;
  for (const Record* finding : evidence.findings) reasons.push_back(finding_text(finding->body));
  return reasons;
}

/// Whether every trial of `bench` ran out of memory.
bool lacked_memory(const Json& body) {
  bool lacked = false;
  for (const Json& part : member(body, "parts"))
    lacked = lacked || value_at<int>(member(part, "figures"), "trials_without_memory").value_or(0) > 0;
  return lacked && !any(work_in(body));
}

/// Exit code 2 or 3 if a rank could not start for a reason outside the program, else empty.
std::optional<int> environment_code(const Evidence& evidence) {
  std::optional<int> code;
  for (const ByRank& part : evidence.parts)
    for (const auto& [number, rank] : part) {
      if (lacked_memory(rank.last_body())) {
        code = 3;
        continue;
      }
      if (value_at<std::int64_t>(rank.last_body(), "steps").value_or(0) > 0) return std::nullopt;
      const std::optional<StatusCode> error = error_code(rank.last_body());
      for (const StatusCode status : {StatusCode::unavailable, StatusCode::unsupported,
                                      StatusCode::out_of_memory, StatusCode::no_space})
        if (error == status) code = 3;
      if (error == StatusCode::invalid_argument && !code) code = 2;
    }
  return code;
}

/// scripts/run.sh sends SIGUSR1 when it gets Ctrl-C or SIGTERM.
std::string signal_words(const std::string& signal) {
  return signal == "SIGUSR1" ? "a stop request (SIGUSR1, as from scripts/run.sh after Ctrl-C)" : signal;
}

std::string signal_reason(const Evidence& evidence) {
  for (const auto& [number, rank] : evidence.ending())
    if (rank.end && !text_at(rank.end->body, "signal").empty())
      return fmt::format("stopped by {}{}", signal_words(text_at(rank.end->body, "signal")),
                         step_text(rank.end->step));
  return "stopped by a signal";
}

std::string pass_reason(const Evidence& evidence, bool has_mistrusted) {
  constexpr double min_shown = 0.001;
  std::vector<std::string> little;
  for (const auto& [kind, share] : little_verified(evidence))
    little.push_back(share < min_shown ? kind + " < 0.1 %" : fmt::format("{} {:.3g} %", kind, 100 * share));
  std::string text = fmt::format("all {}planned work was done {}on {}", has_mistrusted ? "other " : "",
                                 little.empty() ? "and verified " : "",
                                 counted(static_cast<std::size_t>(evidence.size), "rank"));
  if (evidence.parts.size() > 1) text += fmt::format(", in {} parts", evidence.parts.size());
  if (!evidence.restarts.empty())
    text += fmt::format(", after {}", counted(evidence.restarts.size(), "restart"));
  if (!little.empty()) text += fmt::format("; only part of it was verified: {}", fmt::join(little, ", "));
  return text;
}

Verdict verdict(const char* name, int code, std::vector<std::string> reasons) {
  if (reasons.size() > max_reasons) {
    const std::size_t more = reasons.size() - max_reasons;
    reasons.resize(max_reasons);
    reasons.push_back(fmt::format("and {} more", more));
  }
  return {.name = name, .exit_code = code, .reasons = std::move(reasons)};
}

/// Number of wrong results that a rank counted in one part of the load.
std::uint64_t wrong_results(const Json& part) {
  std::uint64_t wrong = 0;
  for (const char* name : {"mismatches", "disagreements", "wrong_words", "wrong_rounds", "wrong_checks"})
    wrong += value_at<std::uint64_t>(member(part, "figures"), name).value_or(0);
  return wrong;
}

/// Wrong results that a rank counted but whose fault records are missing.
std::vector<std::string> unrecorded_faults(const Evidence& evidence) {
  std::vector<std::string> reasons;
  std::set<int> recorded;        // ranks that recorded a fault or are accused
  std::set<std::string> phases;  // of faults; other ranks may count a wrong result that was passed on to them
  for (const Record* fault : evidence.faults) {
    recorded.insert({fault->rank, value_at<int>(fault->body, "rank").value_or(fault->rank)});
    recorded.merge(accused_ranks(fault->body, {}));
    phases.insert(text_at(fault->body, "phase"));
  }
  for (const ByRank& part : evidence.parts)
    for (const auto& [number, rank] : part)
      for (const Json& report : member(rank.last_body(), "parts"))
        if (!recorded.contains(number) && !phases.contains(text_at(report, "name")) &&
            wrong_results(report) > 0 && !value_at<bool>(report, "success").value_or(false))
          reasons.push_back(fmt::format("rank {}, {}: {}; its fault record is missing", number,
                                        text_at(report, "name"), text_at(report, "failure")));
  return reasons;
}

/// Reasons against the run, by severity.
struct Reasons {
  std::vector<std::string> fault, incomplete, degraded;
  std::vector<std::string> missing = {};  ///< missing records: incomplete
  std::vector<std::string> idle = {};     ///< idle devices, which explain their other errors: degraded
  std::vector<std::string> unfinished;    ///< work left by a stopped run; no evidence against the hardware
  bool interrupted = false;
};

Reasons weigh(const Evidence& evidence, const Json& injections) {
  Reasons reasons{.fault = fault_reasons(evidence),
                  .incomplete = missed_injections(injections),
                  .degraded = finding_reasons(evidence),
                  .unfinished = unfinished_parts(evidence),
                  .interrupted = was_interrupted(evidence)};
  append(reasons.fault, unrecorded_faults(evidence));
  append(reasons.missing, missing_evidence(evidence.parts, evidence.size, false));
  append(reasons.incomplete, broken_ranks(evidence));
  append(reasons.incomplete, early_end(evidence));
  append(reasons.incomplete, failed_parts(evidence));
  if (evidence.size == 0) reasons.incomplete.push_back("no rank left a record");
  append(reasons.unfinished, idle_ranks(evidence));
  if (!reasons.interrupted) append(reasons.incomplete, std::exchange(reasons.unfinished, {}));
  return reasons;
}

bool is_of(const Evidence& evidence, std::string_view command) {
  for (const auto& [number, rank] : evidence.ending())
    if (text_at(rank.start_body(), "command") == command) return true;
  return false;
}

/// Additional requirements of `verify`: every operation on every device, and no idle device. A run that was
/// stopped or lost a rank may not have reached every operation, so missing ones are no evidence against it.
void weigh_readiness(const std::vector<Record>& records, const Evidence& evidence, Reasons& reasons) {
  if (!is_of(evidence, "verify")) return;
  const Json result = build_result(records, {});
  const ReadinessReasons found = reasons_of(readiness_of(result), result);
  reasons.fault = fault_reasons(evidence, ranks_of_idle_devices(result));
  append(reasons.fault, unrecorded_faults(evidence));
  if (reasons.interrupted) {
    append(reasons.unfinished, found.not_run);
  } else if (broken_ranks(evidence).empty()) {
    reasons.idle = found.idle;
    append(reasons.incomplete, found.not_run);
  }
}

Verdict judge_evidence(const std::vector<Record>& records, const Json& injections) {
  const Evidence evidence = sort_evidence(records);
  Reasons weighed = weigh(evidence, injections);
  weigh_readiness(records, evidence, weighed);
  // A stopped or aborted run always leaves unverified work, so its share is judged only in completed runs.
  if (weighed.fault.empty() && weighed.missing.empty() && weighed.incomplete.empty() && !weighed.interrupted)
    weighed.incomplete = unverified_work(evidence);
  std::vector<std::string> all;
  if (!injections.empty()) all.emplace_back(injected_reason);
  append(all, weighed.idle);
  append(all, weighed.fault);
  append(all, weighed.missing);
  append(all, weighed.incomplete);
  append(all, weighed.degraded);
  if (weighed.interrupted) all.push_back(signal_reason(evidence));
  append(all, weighed.unfinished);
  const std::vector<std::string> mistrusted = mistrusted_parts(evidence);
  append(all, mistrusted);

  const auto conclude = [&](const char* name, int code) {
    Verdict made = verdict(name, code, all);
    made.has_all_evidence = weighed.missing.empty();
    return made;
  };
  if (!weighed.fault.empty()) return conclude("fault", exit_code::fault);
  if (!weighed.missing.empty() || !weighed.incomplete.empty())
    return conclude("incomplete", environment_code(evidence).value_or(exit_code::incomplete));
  if (!weighed.degraded.empty() || !weighed.idle.empty()) return conclude("degraded", exit_code::degraded);
  if (weighed.interrupted) return conclude("interrupted", exit_code::interrupted);
  all.push_back(pass_reason(evidence, !mistrusted.empty()));
  return conclude("pass", exit_code::pass);
}

Verdict judge_evidence_so_far(const Evidence& evidence, bool is_injected) {
  const std::vector<std::string> faults = fault_reasons(evidence), findings = finding_reasons(evidence);
  std::vector<std::string> all, broken = errors(evidence);
  for (const Record* loss : evidence.losses) broken.push_back(loss_text(loss->body));
  if (is_injected) all.emplace_back(injected_reason);
  append(all, faults);
  append(all, broken);
  append(all, findings);
  if (!faults.empty()) return verdict("fault", exit_code::fault, all);
  if (!broken.empty()) return verdict("incomplete", exit_code::incomplete, all);
  if (!findings.empty()) return verdict("degraded", exit_code::degraded, all);
  all.push_back(
      fmt::format("no fault found so far on {}", counted(static_cast<std::size_t>(evidence.size), "rank")));
  return verdict("running", no_exit_code, all);
}

}  // namespace

void lose_evidence(Verdict& verdict, const std::vector<std::string>& why) {
  if (why.empty()) return;
  if (verdict.exit_code == exit_code::pass) verdict.reasons.clear();
  if (verdict.exit_code == exit_code::pass || verdict.exit_code == exit_code::degraded ||
      verdict.exit_code == exit_code::interrupted) {
    verdict.name = "incomplete";
    verdict.exit_code = exit_code::incomplete;
  }
  append(verdict.reasons, why);
  verdict.has_all_evidence = false;
}

Verdict judge_so_far(const std::vector<Record>& records) {
  Json injections = injection_outcomes(records);
  Verdict made = judge_evidence_so_far(sort_evidence(records), !injections.empty());
  for (Json& injection : injections)
    if (member(injection, "found") == false) injection["found"] = nullptr;
  made.injections = std::move(injections);
  return made;
}

Verdict judge(const std::vector<Record>& records) {
  Json injections = injection_outcomes(records);
  Verdict made = judge_evidence(records, injections);
  made.injections = std::move(injections);
  return made;
}

}  // namespace egt
