#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace egt {

using Json = nlohmann::json;

/// The unit that producers emit and sinks format. `result.json` is a pure function of all ranks' records.
enum class RecordKind {
  start,      ///< once per rank: RankIdentity, device, options, system (body: see report/result.hpp)
  epoch,      ///< once per epoch: metrics of its steps
  progress,   ///< about once per second: cumulative metrics of every part, telemetry, counters
  fault,      ///< a hardware error: a Fault
  finding,    ///< results are right, but performance or environment is not: a Finding
  loss,       ///< a rank is stuck or has exited: a Loss
  late_stop,  ///< a rank does not end soon after a stop signal: a LateStop with its activity
  restart,    ///< the ranks lost communication and recovered: a Restart
  injection,  ///< a fault was injected: an Injection, and its location
  notice,     ///< for people: body {"level": "info"|"warning", "text": ".."}
  end,        ///< once per rank: the last progress, and the reason of the stop
};

struct Record {
  RecordKind kind = RecordKind::notice;
  double time = 0;  ///< seconds since 1970, UTC
  int rank = 0;
  std::int64_t step = -1;  ///< -1: outside the steps
  Json body;
};

/// How certain it is that `Fault::rank` is faulty. `majority`: most of the evidence points to it.
/// `ambiguous`: only that it is among `suspects`.
enum class Blame { certain, majority, ambiguous };

/// A hardware error. Data, never a Status. `rank` -1: unknown (blame ambiguous; `where` lists both ranks).
struct Fault {
  std::string kind;      ///< memory, file, collective, replica, nonfinite, ..
  std::string detector;  ///< check that detected it
  int rank = -1;
  std::string hostname;
  std::string device_uuid;
  std::int64_t step = -1;        ///< training step of the fault
  std::int64_t found_step = -1;  ///< training step at detection; -1: the same
  std::string phase;             ///< part of the run and its activity, as text
  std::string part = {};         ///< part of the run, as `PartReport::name`; empty: the device
  std::string where;             ///< tensor, layer, block or file, as text
  std::uint64_t offset = 0;      ///< bytes from the start of `where`
  std::string expected;          ///< hexadecimal; "digest 0x.." where results are compared by digests
  std::string actual;
  std::string xor_mask;     ///< wrong bits; empty: unknown, as of digests
  std::uint64_t count = 1;  ///< number of elements that differ
  Json map;                 ///< known wrong positions, if there are several: see `error_map`
  Blame blame = Blame::certain;
  std::vector<int> suspects;  ///< ranks of an ambiguous blame; else empty
  /// Identifies the event that several records report, by the same text on every rank; empty: no other
  /// record. Final records replace provisional ones, and one per rank counts.
  std::string incident;
  bool provisional = false;     ///< reported immediately; a later record of the incident has details
  std::string reproducer = {};  ///< file in the run directory that repeats the operation; empty: none
  bool settles = false;         ///< final, after a provisional record of some rank; not in the journal
};

/// Correct results, but insufficient performance or health: the reason for `degraded`.
struct Finding {
  std::string kind;  ///< outlier, temperature, throttle, power, memory, ecc, link, ..
  int rank = -1;     ///< -1: all ranks
  std::string hostname;
  std::string device_uuid;
  std::string where;               ///< affected metric, as text: "step time", "clocks throttled"
  std::string text;                ///< event in one line for people
  std::optional<double> expected;  ///< the limit or the peers' value; in the unit of `text`
  std::optional<double> actual;
  std::vector<int> ranks = {};  ///< both ends of the affected slow pairs; else empty
};

/// A rank that cannot continue: the reason for `incomplete`.
struct Loss {
  enum class How {
    stuck,     ///< it responds, but does not progress
    silent,    ///< its process does not respond: stopped, or its node is down
    vanished,  ///< its process exited without a report
    failed,    ///< it reported that it cannot continue
  };
  How how = How::stuck;
  int rank = -1;
  std::string hostname;
  std::string device_uuid;
  std::string phase;       ///< the rank's activity: "train: sums of step 20", "file: write"
  std::int64_t step = -1;  ///< of the rank's training; -1: unknown
  double seconds = 0;      ///< without progress
  std::string text;        ///< reason in one line, if reported
};

/// A rank that does not end soon after a stop signal. Not a loss: it may need more time than mpirun grants.
struct LateStop {
  int rank = -1;
  std::string signal;            ///< "SIGINT"
  std::string phase;             ///< current activity of its main thread; empty: unknown
  bool waits_for_peers = false;  ///< the activity is a wait for peers
  std::int64_t step = -1;        ///< of its training; -1: unknown
  double seconds = 0;            ///< duration of the activity so far
};

/// The communicator was aborted and rebuilt; training continues after the last agreed step.
struct Restart {
  int number = 1;                  ///< number of this restart in the run, from 1
  int rank = -1;                   ///< awaited rank; -1: unknown
  std::string phase;               ///< activity of that rank
  double seconds = 0;              ///< without progress of that rank
  std::int64_t given_up_step = 0;  ///< the step that was not reached
  std::int64_t resumed_step = 0;   ///< first repeated step
};

const char* to_string(RecordKind kind);
const char* to_string(Blame blame);
const char* to_string(Loss::How how);

/// JSON of the journal and of `faults[]`; names are the contract's.
Json to_json(const Fault& fault);
Json to_json(const Finding& finding);
Json to_json(const Loss& loss);
Json to_json(const LateStop& stop);
Json to_json(const Restart& restart);
/// One line of the journal: {"kind","time","rank","step","body"}.
Json to_json(const Record& record);
/// Reverse of to_json; false if a member is missing or of the wrong type.
bool from_json(const Json& json, Record& record);

}  // namespace egt
