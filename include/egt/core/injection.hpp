#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "egt/core/flip.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Faults that a run can inject; names are the contract's ("file-bit").
enum class InjectionKind {
  weight,           ///< a master weight in memory, after the update of the step
  gradient,         ///< this rank's own weight gradient, before the all-reduce
  activation,       ///< output of a layer
  gemm,             ///< output of a GEMM, before its activation
  extreme,          ///< result of a transcendental chain
  all_reduce,       ///< this rank's result of a gradient all-reduce; with bit 30, its input
  collective,       ///< data that the rank receives from or sends into a collective (`layer`: which one)
  optimizer,        ///< a moment of the optimizer in memory
  memory,           ///< a word of the filled memory, between passes of the memory test
  memory_gemm,      ///< result of a memory-resident GEMM
  host_copy,        ///< data that a copy to the host returned to the device
  multiprocessor,   ///< a unit of one multiprocessor (of a CPU on the host; `layer`: which unit), in a vote
  file_bit,         ///< a bit of a file's data
  file_stale,       ///< a block that still holds its previous content
  file_torn,        ///< a block that was written in part
  file_misplaced,   ///< a block written to the location of another
  file_lost,        ///< a block that was never written
  slow,             ///< the rank delays its steps
  hang,             ///< its main thread, or with a layer its device's stream, stops (for `ms`)
  kill,             ///< SIGKILL
  stop,             ///< SIGSTOP (for `ms`)
  temperature,      ///< the sensor reports a hot device
  xid,              ///< the driver reports a hardware error
  ecc,              ///< an uncorrectable memory error is counted
  ecc_corrected,    ///< corrected memory errors are counted with each reading
  diskfull,         ///< the disk of the file workload is full
  memory_pressure,  ///< the sensor reports more used memory than expected
  idle,             ///< the device gets no work: all compute is skipped
  device_error,     ///< a device call returns a hardware error, and so does every later call
};

/// `layer` of host_copy: the copy to the host; 1, the default: the copy to the device.
constexpr int host_copy_to_host = 2;

/// Keys that only some kinds accept, in the order of the help text.
enum InjectionKey : unsigned {
  key_bit = 1,
  key_count = 2,
  key_stride = 4,
  key_layer = 8,
  key_peer = 16,
  key_ms = 32,
  key_lasting = 64,
  keys_of_bits = key_bit | key_count | key_stride,
  keys_of_tensor = keys_of_bits | key_layer,
  keys_of_pass = keys_of_tensor | key_lasting,
};

/// Features that a kind needs for its injection and detection: see unmet_need.
enum InjectionNeed : unsigned {
  needs_states = 1,  ///< two training states to compare: of two ranks, or of one with second passes
  needs_peers = 2,
  needs_memory = 4,
  needs_mix = 8,
  needs_files = 16,
  needs_coverage = 32,
  needs_extreme = 64,
  needs_hidden_layers = 128,
};

/// Commands that can inject a kind, besides the complete jobs (burn, verify, selftest), which inject all.
enum InjectionPlace : unsigned {
  in_links = 1,
  in_bench = 2,
  in_divided_bench = 4,  ///< --parallel tensor or pipeline
  in_loadtest = 8,
  in_all_runs = in_links | in_bench | in_loadtest,
};

/// Detectors of faults that change data. Injections for one detector must be further apart than its checks.
enum class Detector { replica, replay, extreme, collective, memory, host_copy, vote, file };

struct DetectorRow {
  const char* part;         ///< its part of the run, as in `Fault::part`
  bool looks_every_period;  ///< checks once per period in every rank's training loop; false: at its own times
};
/// In the order of the enumeration.
inline constexpr DetectorRow detector_rows[] = {{"train", true},
                                                {"train", true},
                                                {"train", true},
                                                {"collective", true},
                                                {"memory", false},
                                                {"host-copies", false},
                                                {"multiprocessors", false},
                                                {"io", false}};

/// Evidence that an injection was detected. "Its rank" is the rank of the injection.
enum class FoundBy {
  fault,         ///< one of the row's `faults` on its rank
  stall,         ///< a loss or a restart of its rank
  death,         ///< as stall, or the missing end record of its rank
  slowness,      ///< a finding "outlier" of its rank, or "link" of its pair of ranks
  heat,          ///< a finding "temperature" of its rank, or its limiter lowered the load
  memory_guard,  ///< its rank's limiter reduced the memory fill
  file_part,     ///< its rank's file workload failed
  anything,      ///< any fault, loss, restart or finding of its rank, or a failed part
};

struct FaultKind {
  const char* kind = nullptr;
  const char* part = nullptr;  ///< part of the run; null: any
};
using FaultKinds = std::array<FaultKind, 3>;

/// Properties of an injection kind. A new kind needs a row, code that injects it, and documentation.
struct InjectionRow {
  InjectionKind kind;
  const char* name;
  unsigned keys = 0;                      ///< InjectionKey
  unsigned needs = 0;                     ///< InjectionNeed
  unsigned places = 0;                    ///< InjectionPlace
  std::optional<Detector> detector = {};  ///< selftest tests it; std::nullopt: changes no data
  FaultKinds faults = {};                 ///< fault records that prove the detection
  FoundBy found_by = FoundBy::fault;

  constexpr bool changes_data() const { return detector.has_value(); }
  constexpr bool accepts(InjectionKey key) const { return (keys & key) != 0; }
};

/// One row per kind, in the order of the enumeration. Some kinds are detected by one of several `faults`. A
/// flip may drive the loss to infinity before the digests are compared. A flip in a training state makes the
/// next pass differ from its second pass, and rounding may make the states equal again before a check.
inline constexpr auto injection_rows = [] {
  using enum InjectionKind;
  using enum FoundBy;
  using D = Detector;
  constexpr FaultKinds of_state = {{{"replica"}, {"replay"}, {"nonfinite"}}},
                       of_pass = {{{"replay"}, {"nonfinite"}}},
                       of_gemm = {{{"replay"}, {"gemm"}, {"nonfinite"}}},
                       of_sum = {{{"all-reduce"}, {"nonfinite"}}},
                       of_peers = {{{"collective"}, {"link", "peer-copies"}, {"link", "links"}}},
                       of_host_copies = {{{"link", "host-copies"}}};
  constexpr unsigned in_networks = in_divided_bench | in_loadtest;
  constexpr unsigned needs_chains = needs_extreme | needs_hidden_layers;
  const auto same = [](const char* kind) { return FaultKinds{{{kind}}}; };
  return std::to_array<InjectionRow>({
      {weight, "weight", keys_of_tensor, needs_states, in_networks, D::replica, of_state},
      {gradient, "gradient", keys_of_pass, 0, in_networks, D::replay, of_pass},
      {activation, "activation", keys_of_pass, 0, in_networks, D::replay, of_pass},
      {gemm, "gemm", keys_of_pass, 0, in_divided_bench, D::replay, of_gemm},
      {extreme, "extreme", keys_of_pass, needs_chains, 0, D::extreme, same("extreme")},
      {all_reduce, "all-reduce", keys_of_pass, needs_peers | needs_coverage, 0, D::replay, of_sum},
      {collective, "collective", keys_of_tensor | key_peer, needs_peers, in_links, D::collective, of_peers},
      {optimizer, "optimizer", keys_of_tensor, needs_states, 0, D::replica, of_state},
      {memory, "memory", keys_of_bits, needs_memory, 0, D::memory, same("memory")},
      {memory_gemm,
       "memory-gemm",
       keys_of_bits | key_lasting,
       needs_memory,
       0,
       D::memory,
       {{{"gemm", "memory"}}}},
      {host_copy, "host-copy", keys_of_tensor, needs_mix, 0, D::host_copy, of_host_copies},
      {multiprocessor, "multiprocessor", key_bit | key_layer | key_lasting, needs_mix, 0, D::vote,
       same("multiprocessor")},
      {file_bit, "file-bit", keys_of_bits, needs_files, 0, D::file, same("file-bit")},
      {file_stale, "file-stale", 0, needs_files, 0, D::file, same("file-stale")},
      {file_torn, "file-torn", 0, needs_files, 0, D::file, same("file-torn")},
      {file_misplaced, "file-misplaced", 0, needs_files, 0, D::file, same("file-misplaced")},
      {file_lost, "file-lost", 0, needs_files, 0, D::file, same("file-lost")},
      {slow, "slow", key_count | key_peer | key_ms, 0, in_links | in_bench, {}, {}, slowness},
      {hang, "hang", key_layer | key_peer | key_ms, 0, in_all_runs, {}, {}, stall},
      {kill, "kill", 0, 0, in_all_runs, {}, {}, death},
      {stop, "stop", key_ms, 0, in_all_runs, {}, {}, stall},
      {temperature, "temperature", key_count | key_ms, 0, in_all_runs, {}, {}, heat},
      {xid, "xid", 0, 0, in_all_runs, {}, same("xid")},
      {ecc, "ecc", 0, 0, in_all_runs, {}, same("ecc")},
      {ecc_corrected, "ecc-corrected", key_count, 0, in_all_runs, {}, {}, anything},
      {diskfull, "diskfull", key_count, needs_files, 0, {}, {}, file_part},
      {memory_pressure, "memory-pressure", 0, 0, in_all_runs, {}, {}, memory_guard},
      {idle, "idle", 0, 0, 0, {}, {}, anything},
      {device_error, "device-error", key_count, 0, in_all_runs, {}, same("device-error")},
  });
}();

constexpr const InjectionRow& row_of(InjectionKind kind) {
  return injection_rows[static_cast<std::size_t>(kind)];
}
constexpr const DetectorRow& row_of(Detector detector) {
  return detector_rows[static_cast<std::size_t>(detector)];
}
/// Only for kinds that change data.
constexpr Detector detector_of(InjectionKind kind) {
  return row_of(kind).detector.value();
}
constexpr bool looks_every_period(Detector detector) {
  return row_of(detector).looks_every_period;
}
/// The row of the kind with this name; null: no such kind.
const InjectionRow* find_injection_row(std::string_view name);
/// "hang, kill or stop": kinds that change data sorted by name, then the remaining ones in table order.
std::string kinds_with_place(InjectionPlace place);

struct InjectionNeedRow {
  InjectionNeed need;
  const char* refusal;   ///< error text for a requested injection: reason and remedy
  const char* left_out;  ///< reason why selftest skips it
};
/// The first need of the kind that is in `missing` (InjectionNeed); null: all needs are met.
const InjectionNeedRow* unmet_need(InjectionKind kind, unsigned missing);

/// Duration of a fault in a pass, an all-reduce or a vote: one of them, until the next check, or until the
/// end.
enum class Lasting { once, check, always };

/// One injected fault:
/// `KIND:rank=R,step=S[,bit=B][,count=C][,stride=T][,layer=L][,peer=P][,ms=M][,lasting=once|check|always]`.
struct Injection {
  InjectionKind kind = InjectionKind::weight;
  int rank = 0;
  std::int64_t step = 0;              ///< injected at the first opportunity at or after this step
  std::optional<std::uint32_t> mask;  ///< bits to flip in a word (bit=3 or bit=3+7); nullopt: chosen
  std::uint64_t count = 1;   ///< words that are hit, up to 2^24; for slow, temperature and diskfull: the
                             ///< amount; for device-error: which call from the step on fails
  std::uint64_t stride = 1;  ///< distance of the words, up to 2^32
  std::optional<int> layer;  ///< from 1; none: chosen. Collective: which one, see collective.hpp. Hang: the
                             ///< stream hangs; none: the main thread
  std::optional<int> peer;   ///< links: only traffic between `rank` and this rank; none: any. Collective of a
                             ///< burn: data that `rank` copies from this neighbour
  std::optional<double> ms;  ///< duration, for kinds that last; std::nullopt: unlimited
  std::optional<Lasting> lasting = {};  ///< for kinds with key_lasting; none: as the coverage detects it, of
                                        ///< a vote one round, of a memory-resident GEMM one repetition
};

/// Fails with invalid_argument and one line on what is wrong and what is allowed. The kind's row defines the
/// accepted keys; for a collective, `layer` selects which one.
Result<Injection> parse_injection(std::string_view text);
/// In the user's notation; parse_injection returns the same injection.
std::string to_text(const Injection& injection);
const char* to_string(InjectionKind kind);
const char* to_string(Lasting lasting);
/// The request as {"kind","rank","step","bits","count","stride","layer","peer","ms","lasting"}; null: chosen
/// by the program.
Json to_json(const Injection& injection);

/// Selects the words that `injection` hits among `words` (above 0), each once. The count is reduced if count
/// and stride wrap and would hit a word again, which would undo the flip. Values that the request leaves open
/// are derived from `seed`. A chosen bit is 0 to 27, since a flip of a float's upper exponent bits would be
/// too easy to detect.
Flip choose_flip(const Injection& injection, std::uint64_t words, std::uint64_t seed);
/// Index (from 0) of the layer that `injection` hits, of `layers` layers (above 0).
int choose_layer(const Injection& injection, int layers, std::uint64_t seed);

}  // namespace egt
