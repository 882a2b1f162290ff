#pragma once

#include <cstdint>
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
  std::int64_t step = -1;
  std::string phase;         ///< which part of the run
  std::string where;         ///< tensor, layer, block, file: in words
  std::uint64_t offset = 0;  ///< bytes from the start of `where`
  std::string expected;      ///< hexadecimal
  std::string actual;
  std::string xor_mask;
  std::uint64_t count = 1;  ///< how many elements differ
  Blame blame = Blame::certain;
  std::vector<int> suspects;  ///< the ranks that an ambiguous blame names; else empty
};

const char* to_string(RecordKind kind);
const char* to_string(Blame blame);

/// The JSON of the journal and of `faults[]`; names are the contract's.
Json to_json(const Fault& fault);
/// One line of the journal: {"kind","time","rank","step","body"}.
Json to_json(const Record& record);
/// The reverse; an error names what is missing.
bool from_json(const Json& json, Record& record);

}  // namespace egt
