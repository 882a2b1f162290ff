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

/// The faults that a run may be asked to suffer on purpose; names are the contract's ("file-bit").
enum class InjectionKind {
  weight,           ///< a master weight, at rest after the update of the step
  gradient,         ///< this rank's own weight gradient, before it is summed over ranks
  activation,       ///< what a layer hands on
  gemm,             ///< what a product gives, before its activation
  extreme,          ///< what a chain of transcendental functions gives
  all_reduce,       ///< what this rank gets of a gradient's all-reduce; with bit 30, what it puts in
  collective,       ///< what this rank receives of a collective (layer: which one) or sends into it
  optimizer,        ///< a moment of the optimizer, at rest
  memory,           ///< a word of the filled memory, at rest
  host_copy,        ///< what came back to the device of a copy to the host
  file_bit,         ///< a bit of a file's data
  file_stale,       ///< a block that still holds what was written before
  file_torn,        ///< a block that was written in part
  file_misplaced,   ///< a block that was written to the place of another
  file_lost,        ///< a block that was never written
  slow,             ///< the rank takes longer for its steps than it could
  hang,             ///< its main thread, or with a layer its device's stream, makes no progress (for `ms`)
  kill,             ///< SIGKILL
  stop,             ///< SIGSTOP (for `ms`)
  temperature,      ///< the sensor tells of a hot device
  xid,              ///< the driver tells of a hardware error
  ecc,              ///< an uncorrectable memory error is counted
  diskfull,         ///< the disk of the file part has no room left
  memory_pressure,  ///< the sensor tells of more memory in use than there should be
  idle,             ///< the device gets no work: whatever computes is left out
  device_error,     ///< a call of the device returns a hardware error, and every later call too
};

/// Keys that not every kind accepts, in the order of the help.
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

/// What must be on for a kind to strike and to be found: see unmet_need.
enum InjectionNeed : unsigned {
  needs_states = 1,  ///< two states of training that are compared: of two ranks, or of one with second passes
  needs_peers = 2,
  needs_memory = 4,
  needs_host_copies = 8,
  needs_files = 16,
  needs_coverage = 32,
  needs_extreme = 64,
  needs_hidden_layers = 128,
};

/// Who else than the jobs of all parts (burn, verify, selftest), which have one for every kind, has a place
/// for it.
enum InjectionPlace : unsigned {
  in_links = 1,
  in_bench = 2,
  in_divided_bench = 4,  ///< --parallel tensor or pipeline
  in_loadtest = 8,
  in_all_runs = in_links | in_bench | in_loadtest,
};

/// Who finds the faults of a kind that changes data. Those of one detector must not come closer than it
/// looks.
enum class Detector { replica, replay, extreme, collective, memory, host_copy, file };

struct DetectorRow {
  const char* part;         ///< of the run, as in `Fault::part`
  bool looks_every_period;  ///< in every rank's training loop; else it goes round at its own pace
};
/// In the order of the enumeration.
inline constexpr DetectorRow detector_rows[] = {
    {"train", true},   {"train", true},        {"train", true}, {"collective", true},
    {"memory", false}, {"host-copies", false}, {"io", false}};

/// What shows that an injection was found.
enum class FoundBy {
  fault,         ///< one of the row's `faults` on its rank
  stall,         ///< a loss or a restart of its rank
  death,         ///< the same, or the end record that its rank did not leave
  slowness,      ///< a finding "outlier" of its rank, or "link" of its pair
  heat,          ///< a finding "temperature" of its rank, or its guard lowered the load
  memory_guard,  ///< its rank's guard made the fill smaller
  file_part,     ///< its rank's file part failed
  anything,      ///< any fault, loss, restart or finding of its rank, or a part that failed
};

/// A kind of faults.
struct FaultKind {
  const char* kind = nullptr;
  const char* part = nullptr;  ///< only of this part of the run; null: of any
};
using FaultKinds = std::array<FaultKind, 3>;

/// All that is known of a kind of injections. A further one needs its row, the place that injects it and its
/// documentation.
struct InjectionRow {
  InjectionKind kind;
  const char* name;
  unsigned keys = 0;                      ///< InjectionKey
  unsigned needs = 0;                     ///< InjectionNeed
  unsigned places = 0;                    ///< InjectionPlace
  std::optional<Detector> detector = {};  ///< which selftest proves; none: data stay as they are
  FaultKinds faults = {};                 ///< which count as having found it
  FoundBy found_by = FoundBy::fault;

  constexpr bool changes_data() const { return detector.has_value(); }
  constexpr bool accepts(InjectionKey key) const { return (keys & key) != 0; }
};

/// In the order of the enumeration. What is flipped may make the loss infinite before the digests are looked
/// at. After a flip in a state the next pass differs from its second one, and rounding may leave the states
/// alike again before a check.
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
      {host_copy, "host-copy", keys_of_bits, needs_host_copies, 0, D::host_copy, of_host_copies},
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
/// Of a kind that changes data.
constexpr Detector detector_of(InjectionKind kind) {
  return row_of(kind).detector.value();
}
constexpr bool looks_every_period(Detector detector) {
  return row_of(detector).looks_every_period;
}
/// null: no kind has that name.
const InjectionRow* find_injection_row(std::string_view name);
/// "hang, kill or stop": the kinds that change data by name, then the others in the order of the table.
std::string kinds_with_place(InjectionPlace place);

struct InjectionNeedRow {
  InjectionNeed need;
  const char* refusal;   ///< of an injection that was asked for: why, and what to do
  const char* left_out;  ///< why selftest has none
};
/// The first need of the kind that is among `missing` ones (InjectionNeed); null: it has all that it needs.
const InjectionNeedRow* unmet_need(InjectionKind kind, unsigned missing);

/// How long a fault of a pass or all-reduce lasts: one pass of one step, up to the next check, or to the end
/// of the run.
enum class Lasting { once, check, always };

/// One injected fault:
/// `KIND:rank=R,step=S[,bit=B][,count=C][,stride=T][,layer=L][,peer=P][,ms=M][,lasting=once|check|always]`.
struct Injection {
  InjectionKind kind = InjectionKind::weight;
  int rank = 0;
  std::int64_t step = 0;              ///< it strikes at the first chance at or after this step
  std::optional<std::uint32_t> mask;  ///< bits of a 32-bit word that flip (bit=3, or several: bit=3+7); none:
                                      ///< chosen
  std::uint64_t count = 1;   ///< words that are hit, up to 2^24; of slow, temperature and diskfull: how much;
                             ///< of device-error: which call from the step on fails
  std::uint64_t stride = 1;  ///< words from one to the next, up to 2^32
  std::optional<int> layer;  ///< from 1; none: chosen. Of a collective: which one, see collective.hpp; of a
                             ///< hang: the stream hangs, none: the main thread
  std::optional<int> peer;   ///< of links: only what goes between `rank` and this one; none: with any. Of a
                             ///< burn's collective: what `rank` copies from its neighbour, this one
  std::optional<double> ms;  ///< of kinds that take time; none: without end
  std::optional<Lasting> lasting =
      {};  ///< of gradient, activation, gemm, extreme and all-reduce; none: as the coverage finds it
};

/// invalid_argument, in one line: what is wrong with the text and what is allowed. The kind's row says which
/// keys it accepts; `layer` of a collective says which one.
Result<Injection> parse_injection(std::string_view text);
/// As the user would write it: parse_injection gives the same again.
std::string to_text(const Injection& injection);
const char* to_string(InjectionKind kind);
const char* to_string(Lasting lasting);
/// {"kind","rank","step","bits","count","stride","layer","peer","ms","lasting"}: what was asked for; null:
/// chosen by the program.
Json to_json(const Injection& injection);

/// The words that `injection` hits among `words` of them (above 0), each once: where count and stride go
/// round and would hit a word again, which would undo the flip, the count is less. What it leaves open
/// follows from `seed`. A chosen bit is one of 0 to 27: a flip of a float's upper exponent bits would be seen
/// by anybody.
Flip choose_flip(const Injection& injection, std::uint64_t words, std::uint64_t seed);
/// The layer, from 0, that it hits among `layers` (above 0).
int choose_layer(const Injection& injection, int layers, std::uint64_t seed);

}  // namespace egt
