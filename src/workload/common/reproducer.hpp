#pragma once

#include <functional>
#include <set>
#include <string>

#include "egt/core/digest.hpp"
#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "egt/workload/workload.hpp"

/// A reproducer repeats the device operation of a fault. Operands are patterns, which follow from a seed, so
/// a small file in the run directory holds the whole call.
namespace egt {

/// Limit of the file; a GEMM or a vote needs about 1 KiB.
constexpr std::size_t max_reproducer_bytes = 64u << 20;

/// The content of such a file.
struct Reproducer {
  std::string operation;     ///< `name` of the member of Operation
  Json call;                 ///< its arguments, see repeat.cpp
  Json fault;                ///< body of the fault's record; without injections its `rank` is never null
  std::string device_model;  ///< of the faulty rank: Environment::device_model
  std::string host_id;       ///< of the faulty rank: RankPlace::host_id
  int local_rank = 0;        ///< of the faulty rank
};
Json to_json(const Reproducer& reproducer);
/// invalid_argument: the text is no reproducer of this format. The message begins with a verb.
Result<Reproducer> parse_reproducer(const std::string& text);

/// The whole number `key`, or invalid_argument if it is missing or not within `least` to `most`.
Result<std::int64_t> number_in_call(const Json& call, const char* key, std::int64_t least, std::int64_t most);
Result<std::uint64_t> seed_in_call(const Json& call);

/// How often a call was repeated, and how often its result was wrong.
struct Repetitions {
  int failed = 0, of = 0;
};
std::string to_text(const Repetitions& counts);  ///< "failed 7 of 100"

struct RepetitionLimits {
  int count = 100;
  double seconds = 5;                          ///< no repetition starts later
  std::function<bool()> is_stopped = nullptr;  ///< true: no further repetition; null: never
};
/// Calls `is_right` within the limits. Its error is returned, but `stopped` only ends the repetitions.
Result<Repetitions> repeat(const RepetitionLimits& limits, const std::function<Result<bool>()>& is_right);
/// The same for a call whose right results are equal. `call`: its result. `is_right`: verifies the last one,
/// and is called once per distinct result. If several are right, only the most frequent one counts as right.
/// All others failed.
Result<Repetitions> repeat_digest(const RepetitionLimits& limits, const std::function<Result<Digest>()>& call,
                                  const std::function<Result<bool>()>& is_right);

/// Emits the faults of one part of the run, with reproducers for at most RecordQueue::max_places of them. One
/// thread at a time.
class ReproducerFiles {
 public:
  /// Reads the names of earlier files, of a run that is resumed.
  explicit ReproducerFiles(Environment& environment);
  /// Emits the fault, and writes a file for the first one at its place. The record comes first, since a disk
  /// may hang. A file that cannot be written causes a warning. Returns Fault::reproducer.
  std::string emit(Fault fault, const char* operation, const Json& call);

 private:
  std::string name_of(const Fault& fault);

  Environment& environment_;
  std::set<std::string> places_, names_;
};

/// Records how often this rank's device failed. `file`: Fault::reproducer.
void report_repetitions(Environment& environment, const std::string& file, const Repetitions& counts);

}  // namespace egt
