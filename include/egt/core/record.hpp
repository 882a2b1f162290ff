#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace egt {

using Json = nlohmann::json;

/// The one thing that producers emit and sinks format. `result.json` is a pure function of all ranks'
/// records.
enum class RecordKind {
  start,      ///< once a rank: RankIdentity, device, options, system (body: see report/result.hpp)
  epoch,      ///< once an epoch: figures of its steps
  progress,   ///< about once a second: cumulative figures of every part, telemetry, counters
  fault,      ///< the hardware did wrong: a Fault
  finding,    ///< results are right, but performance or surroundings are not: a Finding
  loss,       ///< a rank is stuck or gone: a Loss
  late_stop,  ///< a stop signal came and the rank does not end at once: what it still does, a LateStop
  restart,    ///< the ranks lost touch and found together again: a Restart
  injection,  ///< a fault was put in on purpose: an Injection, and where it struck
  notice,     ///< for people: body {"level": "info"|"warning", "text": ".."}
  end,        ///< once a rank: the last progress, and why it stopped
};

struct Record {
  RecordKind kind = RecordKind::notice;
  double time = 0;  ///< seconds since 1970, UTC
  int rank = 0;
  std::int64_t step = -1;  ///< -1: outside the steps
  Json body;
};

/// Who is to blame, as far as the evidence goes.
enum class Blame { certain, majority, ambiguous };

/// The hardware did wrong. Data, never a Status. `rank` -1: not known which (blame ambiguous; `where` names
/// both).
struct Fault {
  std::string kind;      ///< memory, file, collective, replica, nonfinite, ..
  std::string detector;  ///< which check saw it
  int rank = -1;
  std::string hostname;
  std::string device_uuid;
  std::int64_t step = -1;        ///< in which it happened
  std::int64_t found_step = -1;  ///< that training had come to when it was detected; -1: the same
  std::string phase;             ///< which part of the run, and what it was doing, in words
  std::string part = {};         ///< of the run, as `PartReport::name`; empty: the device itself
  std::string where;             ///< tensor, layer, block, file: in words
  std::uint64_t offset = 0;      ///< bytes from the start of `where`
  std::string expected;          ///< hexadecimal
  std::string actual;
  std::string xor_mask;
  std::uint64_t count = 1;  ///< how many elements differ
  Blame blame = Blame::certain;
  std::vector<int> suspects;  ///< the ranks that an ambiguous blame names; else empty
  /// Which event the record tells of, the same text on every rank; empty: the record stands alone. Of several
  /// records of one incident only those hold that are not provisional, one a rank.
  std::string incident;
  bool provisional = false;  ///< told as soon as it was seen; a later record of the incident says more
  bool settles =
      false;  ///< a provisional record of the incident was emitted, on whatever rank; not in the record
};

/// The hardware did right, but not well: what makes a run `degraded`.
struct Finding {
  std::string kind;  ///< outlier, temperature, throttle, power, memory, ecc, link, ..
  int rank = -1;     ///< -1: of all ranks
  std::string hostname;
  std::string device_uuid;
  std::string where;               ///< which figure, in words: "step time", "clocks held down by heat"
  std::string text;                ///< what happened, in one line for people
  std::optional<double> expected;  ///< the limit, or what the peers do; in the unit that `text` names
  std::optional<double> actual;
  std::vector<int> ranks = {};  ///< both ends of the slow pairs that it is about; else empty
};

/// A rank that does not go on: why a run is `incomplete`.
struct Loss {
  enum class How {
    stuck,     ///< it answers, but makes no progress
    silent,    ///< its process does not answer: stopped, or its host is gone
    vanished,  ///< its process ended without a word
    failed,    ///< it told that it cannot go on
  };
  How how = How::stuck;
  int rank = -1;
  std::string hostname;
  std::string device_uuid;
  std::string phase;       ///< what it was doing: "train: sums of step 20", "file: write"
  std::int64_t step = -1;  ///< of its training; -1: not known
  double seconds = 0;      ///< without progress
  std::string text;        ///< why, in one line, where it told
};

/// A rank that does not end soon after a stop signal. No loss: it may only need longer than mpirun leaves it.
struct LateStop {
  int rank = -1;
  std::string signal;            ///< "SIGINT"
  std::string phase;             ///< what its main thread still does; empty: not known
  bool waits_for_peers = false;  ///< .. and for whom
  std::int64_t step = -1;        ///< of its training; -1: not known
  double seconds = 0;            ///< that it has been there for
};

/// The communicator was given up and built anew; training goes on behind the last agreed step.
struct Restart {
  int number = 1;                  ///< of this run
  int rank = -1;                   ///< who was waited for; -1: not known
  std::string phase;               ///< what that rank was doing
  double seconds = 0;              ///< for how long it made no progress
  std::int64_t given_up_step = 0;  ///< the step that was not reached
  std::int64_t resumed_step = 0;   ///< the first one that is made again
};

const char* to_string(RecordKind kind);
const char* to_string(Blame blame);
const char* to_string(Loss::How how);

/// The JSON of the journal and of `faults[]`; names are the contract's.
Json to_json(const Fault& fault);
Json to_json(const Finding& finding);
Json to_json(const Loss& loss);
Json to_json(const LateStop& stop);
Json to_json(const Restart& restart);
/// One line of the journal: {"kind","time","rank","step","body"}.
Json to_json(const Record& record);
/// The reverse; an error names what is missing.
bool from_json(const Json& json, Record& record);

}  // namespace egt
