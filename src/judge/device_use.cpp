#include "judge/device_use.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/histogram.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

constexpr double min_share_of_peers = 0.1;

/// One rank's entries in `results[]`, by name.
using Parts = std::map<std::string, const Json*, std::less<>>;

const Json& part(const Parts& parts, std::string_view name) {
  const auto found = parts.find(name);
  return found == parts.end() ? member(Json(), "") : *found->second;
}

std::uint64_t count_at(const Json& json, const char* key) {
  return value_at<std::uint64_t>(json, key).value_or(0);
}

Parts parts_of_rank(const Json& result, int rank) {
  Parts parts;
  for (const Json& entry : member(result, "results"))
    if (value_at<int>(entry, "rank") == rank) parts[text_at(entry, "test_name")] = &entry;
  return parts;
}

bool is_forward(const std::string& where) {
  return where.starts_with("product of") || where.starts_with("activation of");
}

bool spoils_pass(const std::string& kind) {
  return kind == "replay" || kind == "gemm" || kind == "extreme" || kind == "nonfinite";
}

/// One row of the table: which metric counts its verifications, which faults affect it, and its text.
struct Row {
  const char* name;
  const char* part;
  std::uint64_t (*count)(const Json& part, const Parts& all);
  bool (*is_spoilt)(const std::string& kind, const std::string& where);
  std::string (*how)(std::uint64_t least, const Json& part, bool has_peers);
  bool computes;  ///< needs computation on the device, so a device that computed nothing did not verify it
};

std::string times(std::uint64_t count) {
  return count == 1 ? "once" : fmt::format("{} times", count);
}

const Row rows[] = {
    {"Training Forward", "train", [](const Json& train, const Parts&) { return count_at(train, "replays"); },
     [](const std::string& kind, const std::string& where) {
       return spoils_pass(kind) && (kind != "replay" || where.empty() || is_forward(where));
     },
     [](std::uint64_t least, const Json&, bool has_peers) {
       return fmt::format("known pass replayed {}: the same bits as before{}", times(least),
                          has_peers ? ", and on its peers" : "");
     },
     true},
    {"Training Backward", "train", [](const Json& train, const Parts&) { return count_at(train, "replays"); },
     [](const std::string& kind, const std::string&) { return spoils_pass(kind); },
     [](std::uint64_t least, const Json&, bool has_peers) {
       return fmt::format("gradients of these passes, {}: the same bits as before{}", times(least),
                          has_peers ? ", and on its peers" : "");
     },
     true},
    {"Optimizer Step", "readiness",
     [](const Json& readiness, const Parts& all) {
       const std::uint64_t replicas = count_at(part(all, "train"), "replica_checks");
       return count_at(readiness, "optimizer_steps") > 0 ? count_at(readiness, "optimizer_steps") + replicas
                                                         : 0;
     },
     [](const std::string& kind, const std::string&) { return kind == "optimizer" || kind == "replica"; },
     [](std::uint64_t least, const Json&, bool has_peers) {
       return counted(least, "known step") +
              (has_peers ? ", and all ranks' weights and states the same" : "");
     },
     true},
    {"Evaluation Encoding", "readiness",
     [](const Json& readiness, const Parts&) { return count_at(readiness, "evaluations"); },
     [](const std::string& kind, const std::string&) { return kind == "evaluation"; },
     [](std::uint64_t least, const Json& readiness, bool has_peers) {
       return fmt::format("{}, {}: {}the same as on the host",
                          counted(count_at(readiness, "samples"), "known sample"), times(least),
                          has_peers ? "the same on its peers, and " : "");
     },
     true},
    {"Similarity Computation", "readiness",
     [](const Json& readiness, const Parts&) { return count_at(readiness, "similarities"); },
     [](const std::string& kind, const std::string&) { return kind == "similarity"; },
     [](std::uint64_t least, const Json&, bool has_peers) {
       return fmt::format("every sample's best match is itself, {}{}", times(least),
                          has_peers ? ": the same on its peers" : "");
     },
     true},
    {"Memory Cleanup", "readiness",
     [](const Json& readiness, const Parts&) { return count_at(readiness, "cleanups"); },
     [](const std::string& kind, const std::string&) { return kind == "memory"; },
     [](std::uint64_t least, const Json& readiness, bool) {
       const auto bytes = value_at<double>(readiness, "cleanup_bytes").value_or(0);
       return fmt::format("{} taken, verified and given back, {}", format_bytes(bytes), times(least));
     },
     false},
    {"Collective", "collective",
     [](const Json& collective, const Parts&) {
       return count_at(collective, "elements_checked") > 0 ? count_at(collective, "rounds") : 0;
     },
     [](const std::string& kind, const std::string&) { return kind == "collective"; },
     [](std::uint64_t least, const Json&, bool) {
       return fmt::format("{} of known answers, every element", counted(least, "round"));
     },
     false},
    {"File Cycle", "io", [](const Json& io, const Parts&) { return count_at(io, "passes"); },
     [](const std::string& kind, const std::string&) { return kind.starts_with("file-"); },
     [](std::uint64_t least, const Json&, bool) {
       return fmt::format("written, read back and verified on the device, {}", times(least));
     },
     false},
};

/// Wrong results of an operation: the ranks, the count, and a description of the first.
struct WrongResults {
  std::set<int> ranks;
  std::uint64_t count = 0;
  std::string first;

  std::string text() const {
    return count == 0 ? "" : fmt::format("{}, first: {}", counted(count, "wrong result"), first);
  }
};

WrongResults wrong_results(const Row& row, const Json& result, const std::set<int>& idle) {
  WrongResults wrong;
  for (const char* list : {"faults", "fault_repeats"})
    for (const Json& fault : member(result, list)) {
      const std::string kind = text_at(fault, "kind"), where = text_at(fault, "where");
      if (!row.is_spoilt(kind, where)) continue;
      wrong.ranks.merge(accused_ranks(fault, idle));
      // The `count` of a fault is a number of wrong elements, not of faults.
      wrong.count += list == std::string_view("faults") ? 1 : count_at(fault, "count");
      if (!wrong.first.empty()) continue;
      const auto step = value_at<std::int64_t>(fault, "step");
      wrong.first = fmt::format("{} fault{}{}", kind, step ? fmt::format(", step {}", *step) : "",
                                where.empty() ? "" : fmt::format(", in {}", where));
    }
  return wrong;
}

/// Whether every rank has a peer of the same model to compare results with.
bool have_peers(const Json& result) {
  std::map<std::string, int> models;
  for (const Json& rank : member(result, "ranks")) ++models[text_at(member(rank, "device"), "name")];
  return !models.empty() &&
         std::all_of(models.begin(), models.end(), [](const auto& model) { return model.second > 1; });
}

std::string why_left_out(const Row& row, const Json& result) {
  const std::string_view name = row.part;
  if (name == "collective" && member(result, "ranks").size() == 1)
    return "one device has no peer to exchange data with";
  const Json& options = member(result, "options");
  return name == "io" && value_at<bool>(options, "no-io").value_or(false) ? "--no-io" : "";
}

VerifiedOperation operation_of(const Row& row, const Json& result, const std::map<int, Parts>& ranks,
                               const std::set<int>& idle) {
  const WrongResults wrong = wrong_results(row, result, idle);
  VerifiedOperation operation{.name = row.name,
                              .how = {},
                              .failure = wrong.text(),
                              .left_out = why_left_out(row, result),
                              .devices = {}};
  std::optional<std::uint64_t> least;
  for (const auto& [rank, parts] : ranks) {
    const std::uint64_t count = row.count(part(parts, row.part), parts);
    operation.devices.push_back({.rank = rank, .count = count, .is_wrong = wrong.ranks.contains(rank)});
    if (count > 0) least = std::min(least.value_or(count), count);
  }
  if (least) operation.how = row.how(*least, part(ranks.begin()->second, row.part), have_peers(result));
  return operation;
}

/// One rank's telemetry; empty if there is none.
std::string telemetry_text(const Json& telemetry, const std::optional<double>& computes) {
  std::vector<std::string> figures;
  const auto note = [&](const char* quantity, const char* format) {
    if (const auto average = value_at<double>(member(telemetry, quantity), "avg"))
      figures.push_back(fmt::format(fmt::runtime(format), *average));
  };
  note("gpu_utilization_percent", "utilization {:.0f} %");
  note("sm_clock_mhz", "clock {:.0f} MHz");
  note("power_w", "power {:.0f} W");
  if (computes) figures.push_back(fmt::format("computes {:.1f} % of a step", 100 * *computes));
  return fmt::format("{}", fmt::join(figures, ", "));
}

DeviceUse use_of(const Json& rank, const Parts& parts, const Json& result, bool name_host) {
  DeviceUse use;
  use.rank = value_at<int>(rank, "rank").value_or(-1);
  use.label = device_label(rank, name_host);
  use.hostname = text_at(rank, "hostname");
  const Json &memory = part(parts, "memory"), &train = part(parts, "train");
  use.used_bytes = value_at<double>(memory, "used_bytes");
  use.total_bytes = value_at<double>(memory, "total_bytes");
  use.compute_ms = value_at<double>(train, "compute_ms");
  const auto step_ms = value_at<double>(member(train, "step_ms"), "p50");
  const int passes = count_at(train, "compared_steps") > 0 ? 2 : 1;  // per step, equally long
  if (use.compute_ms && step_ms && *step_ms > 0)
    use.computes = std::min(1.0, passes * *use.compute_ms / *step_ms);
  use.figures = telemetry_text(member(member(result, "telemetry"), std::to_string(use.rank)), use.computes);
  for (const Json& loss : member(result, "losses"))
    if (value_at<int>(loss, "rank") == use.rank) use.is_lost = true;
  return use;
}

/// Median pass time of the peers, scaled to this rank's sample count; std::nullopt below `fewest` peers.
std::optional<double> peers_compute_ms(const Json& own, const Json& result, const std::map<int, Parts>& ranks,
                                       std::size_t fewest) {
  const auto model = [](const Json& rank) { return text_at(member(rank, "device"), "name"); };
  const auto samples = value_at<double>(own, "batch");
  std::vector<double> peers;
  for (const Json& rank : member(result, "ranks")) {
    if (rank == own || model(rank) != model(own)) continue;
    const Json& train = part(ranks.at(value_at<int>(rank, "rank").value_or(-1)), "train");
    const auto batch = value_at<double>(rank, "batch"), ms = value_at<double>(train, "compute_ms");
    if (ms && batch && samples && *batch > 0) peers.push_back(*ms * *samples / *batch);
  }
  return peers.size() < fewest ? std::nullopt : std::optional(median_of(peers));
}

bool has_no_utilization(const Json& result, int rank) {
  const Json& telemetry = member(member(result, "telemetry"), std::to_string(rank));
  return value_at<double>(member(telemetry, "gpu_utilization_percent"), "max") == 0.0;
}

/// True if this rank verified no operation that needs the device to compute (Row::computes).
bool computes_nothing_right(const Readiness& readiness, int rank) {
  for (std::size_t i = 0; i < std::size(rows); ++i)
    for (const OperationOnDevice& one : readiness.operations[i].devices)
      if (rows[i].computes && one.rank == rank && one.verified()) return false;
  return true;
}

bool computes_all_right(const Readiness& readiness, int rank) {
  for (std::size_t i = 0; i < std::size(rows); ++i)
    for (const OperationOnDevice& one : readiness.operations[i].devices)
      if (rows[i].computes && one.rank == rank && !one.verified()) return false;
  return true;
}

std::string why_idle(const DeviceUse& use, const Parts& parts, const Readiness& readiness,
                     const Json& result) {
  if (use.is_lost) return "its rank was lost";
  if (parts.empty()) return "its rank left no metrics";
  const Json& memory = part(parts, "memory");
  if (count_at(memory, "filled_bytes") == 0 && count_at(part(parts, "readiness"), "cleanups") == 0)
    return "none of its memory was taken";
  if (!use.compute_ms || *use.compute_ms <= 0) return "its passes computed nothing";
  if (use.peers_compute_ms && *use.compute_ms < min_share_of_peers * *use.peers_compute_ms)
    return fmt::format("a pass took it {:.3g} ms of computing, and its peers {:.3g} ms", *use.compute_ms,
                       *use.peers_compute_ms);
  if (has_no_utilization(result, use.rank)) return "the driver reported no utilization for it";
  return computes_nothing_right(readiness, use.rank) ? "none of its computations gave a right result" : "";
}

std::set<int> idle_ranks(const Readiness& readiness) {
  std::set<int> ranks;
  for (const DeviceUse& use : readiness.devices)
    if (!use.why_idle.empty() && !use.is_lost) ranks.insert(use.rank);
  return ranks;
}

bool part_failed(const Json& result, int rank, const char* name) {
  const Parts parts = parts_of_rank(result, rank);
  const auto found = parts.find(name);
  return found != parts.end() && !value_at<bool>(*found->second, "success").value_or(false);
}

}  // namespace

Readiness readiness_of(const Json& result) {
  std::map<int, Parts> ranks;
  std::set<std::string> hosts;
  for (const Json& rank : member(result, "ranks")) {
    const int number = value_at<int>(rank, "rank").value_or(-1);
    ranks[number] = parts_of_rank(result, number);
    hosts.insert(text_at(rank, "hostname"));
  }
  Readiness readiness;
  const auto judge_operations = [&](const std::set<int>& idle) {
    readiness.operations.clear();
    for (const Row& row : rows) readiness.operations.push_back(operation_of(row, result, ranks, idle));
  };
  judge_operations({});
  for (const Json& rank : member(result, "ranks")) {
    const Parts& parts = ranks.at(value_at<int>(rank, "rank").value_or(-1));
    DeviceUse use = use_of(rank, parts, result, hosts.size() > 1);
    // A single peer may itself be slow, so it counts only if this rank has missing or wrong results.
    use.peers_compute_ms =
        peers_compute_ms(rank, result, ranks, computes_all_right(readiness, use.rank) ? 2 : 1);
    use.why_idle = why_idle(use, parts, readiness, result);
    readiness.devices.push_back(std::move(use));
  }
  if (const std::set<int> idle = idle_ranks(readiness); !idle.empty()) judge_operations(idle);
  return readiness;
}

std::set<int> ranks_of_idle_devices(const Json& result) {
  return text_at(result, "command") == "verify" ? idle_ranks(readiness_of(result)) : std::set<int>();
}

std::set<int> accused_ranks(const Json& fault, const std::set<int>& idle) {
  std::set<int> ranks, accused;
  for (const Json& suspect : member(fault, "suspects"))
    if (suspect.is_number_integer()) ranks.insert(suspect.get<int>());
  if (const auto rank = value_at<int>(fault, "rank")) ranks.insert(*rank);
  std::set_intersection(ranks.begin(), ranks.end(), idle.begin(), idle.end(),
                        std::inserter(accused, accused.end()));
  return accused.empty() ? ranks : accused;
}

ReadinessReasons reasons_of(const Readiness& readiness, const Json& result) {
  ReadinessReasons reasons;
  std::map<int, const DeviceUse*> devices;
  for (const DeviceUse& use : readiness.devices) {
    devices[use.rank] = &use;
    if (!use.why_idle.empty() && !use.is_lost)
      reasons.idle.push_back(fmt::format("rank {} on {}: {} is not being used: {}", use.rank, use.hostname,
                                         use.label, use.why_idle));
  }
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const VerifiedOperation& operation = readiness.operations[i];
    for (const OperationOnDevice& one : operation.devices)
      if (operation.left_out.empty() && one.count == 0 && !one.is_wrong && !devices.at(one.rank)->is_lost &&
          !part_failed(result, one.rank, rows[i].part))
        reasons.not_run.push_back(fmt::format("rank {} on {}: {} was never verified", one.rank,
                                              devices.at(one.rank)->hostname, operation.name));
  }
  return reasons;
}

}  // namespace egt
