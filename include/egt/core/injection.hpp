#pragma once

#include <cstdint>
#include <optional>
#include <span>
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

/// invalid_argument, in one line: what is wrong with the text and what is allowed. `layer` belongs to kinds
/// that have layers (of collective: which one) and to hang, `peer` to slow, hang and collective, `bit`,
/// `count` and `stride` to kinds that flip bits, `count` also to slow, temperature, diskfull and
/// device-error, `ms` to slow, hang, stop and temperature, `lasting` to kinds of a pass.
Result<Injection> parse_injection(std::string_view text);
/// As the user would write it: parse_injection gives the same again.
std::string to_text(const Injection& injection);
/// Does it change data (weight .. file-lost)? The other kinds change the rank's or the node's behaviour.
bool changes_data(InjectionKind kind);
const char* to_string(InjectionKind kind);
const char* to_string(Lasting lasting);
/// In the order of the enumeration.
std::span<const InjectionKind> all_injection_kinds();
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
