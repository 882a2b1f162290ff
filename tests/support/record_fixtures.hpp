#pragma once

#include <string>
#include <utility>
#include <vector>

#include "egt/core/injection.hpp"
#include "egt/core/record.hpp"
#include "judge/record_schema.hpp"

/// Synthetic run records, for tests of code that evaluates records.
namespace egt::fixtures {

inline StartBody start_of(int rank, int size) {
  StartBody body;
  body.place = {.rank = rank, .size = size, .local_rank = rank, .local_size = size, .hostname = "node1"};
  body.device.backend = "cuda";
  body.device.index = rank;
  body.device.name = "NVIDIA H200";
  body.device.uuid = "GPU-" + std::to_string(rank);
  body.memory = {.total_bytes = 143771ull << 20, .free_bytes = 143204ull << 20};
  body.limits.power_limit_w = 700;
  body.batch = 1024;
  body.system = {{"hostname", "node1"}, {"cpu_count", 96}};
  body.command = "burn";
  body.arguments = {"--duration", "60s"};
  body.duration_seconds = 60;
  body.layers = {4096, 8192, 512};
  body.global_batch = 1024 * size;
  body.precisions = {Precision::bf16, Precision::tf32};
  return body;
}

inline Record start(int rank, int size) {
  return {.kind = RecordKind::start,
          .time = 1000,
          .rank = rank,
          .step = -1,
          .body = to_json(start_of(rank, size))};
}

inline PartReport train_part() {
  PartReport part;
  part.name = "train";
  part.description = "trains the network";
  part.figures = {{"loss_first", 2.0}, {"loss_last", 0.5}, {"tflops", 402.0}};
  part.work.gemm_flops = 1e12;
  part.work.replica_checks = 3;
  return part;
}

inline PartReport memory_part() {
  PartReport part;
  part.name = "memory";
  part.description = "fills memory";
  part.figures = {{"filled_fraction", 0.9}};
  part.work.bytes_patrolled = 5'000'000'000;
  return part;
}

/// A body of a progress or end record.
inline Json body_of(const std::vector<PartReport>& parts, std::int64_t steps = 100) {
  Json list = Json::array();
  for (const PartReport& part : parts) list.push_back(part_to_json(part));
  return {{"elapsed_seconds", 30.5},
          {"steps", steps},
          {"parts", list},
          {"telemetry", {{"power_w", {{"min", 90.0}, {"avg", 600.0}, {"max", 700.0}}}}},
          {"counters", {{"ecc_corrected", {{"before", 0}, {"after", 0}}}}}};
}

inline Record progress(int rank, std::int64_t steps = 100) {
  return {.kind = RecordKind::progress,
          .time = 1030.5,
          .rank = rank,
          .step = steps - 1,
          .body = body_of({train_part(), memory_part()}, steps)};
}

inline Record end(int rank, const std::string& reason = "duration") {
  Record record = progress(rank);
  record.kind = RecordKind::end;
  record.time = 1060;
  record.body["reason"] = reason;
  record.body["signal"] = reason == "signal" ? Json("SIGTERM") : Json();
  record.body["error"] = nullptr;
  return record;
}

inline Record failed_end(int rank, StatusCode code, std::int64_t steps) {
  Record record = end(rank, "error");
  record.step = steps - 1;
  record.body["steps"] = steps;
  record.body["error"] = error_to_json(Status(code, "it did not work"));
  return record;
}

inline Record fault(int rank, std::int64_t step = 40) {
  Fault fault;
  fault.kind = "memory";
  fault.detector = "patrol";
  fault.rank = rank;
  fault.step = step;
  fault.phase = "memory";
  fault.where = "block 3";
  fault.offset = 4096;
  fault.expected = "0x0";
  fault.actual = "0x1";
  fault.xor_mask = "0x1";
  return {.kind = RecordKind::fault, .time = 1010, .rank = 0, .step = step, .body = to_json(fault)};
}

/// As reported by the rank `told_by`.
inline Record loss(int rank, Loss::How how = Loss::How::stuck, int told_by = 0, double time = 1020) {
  Loss loss;
  loss.how = how;
  loss.rank = rank;
  loss.hostname = "node1";
  loss.phase = "train: sums";
  loss.step = 20;
  loss.seconds = 4.1;
  return {.kind = RecordKind::loss, .time = time, .rank = told_by, .step = 20, .body = to_json(loss)};
}

inline Record finding(int rank, const std::string& kind = "outlier", const std::string& where = "step time") {
  Finding finding;
  finding.kind = kind;
  finding.rank = rank;
  finding.hostname = "node1";
  finding.where = where;
  finding.text = where + " 5.2 % above the median of its peers";
  return {.kind = RecordKind::finding,
          .time = 1025,
          .rank = rank < 0 ? 0 : rank,
          .step = 50,
          .body = to_json(finding)};
}

inline Record late_stop(int rank, bool waits_for_peers = false) {
  LateStop stop;
  stop.rank = rank;
  stop.signal = "SIGINT";
  stop.phase = "train: sums";
  stop.waits_for_peers = waits_for_peers;
  stop.step = 20;
  stop.seconds = 6.6;
  return {.kind = RecordKind::late_stop, .time = 1030, .rank = rank, .step = 20, .body = to_json(stop)};
}

inline Record restart(int rank, int number = 1, int told_by = 0) {
  Restart restart;
  restart.number = number;
  restart.rank = rank;
  restart.phase = "train: sums";
  restart.seconds = 4.1;
  restart.given_up_step = 21;
  restart.resumed_step = 17;
  return {.kind = RecordKind::restart, .time = 1022, .rank = told_by, .step = 17, .body = to_json(restart)};
}

/// The record of `--inject SPEC` after the injection.
inline Record injection(const std::string& spec, double time = 1009) {
  const Injection asked = parse_injection(spec).value();
  Record record{.kind = RecordKind::injection,
                .time = time,
                .rank = asked.rank,
                .step = asked.step + 1,
                .body = to_json(asked)};
  record.body.update({{"struck_step", asked.step + 1},
                      {"where", "weights of layer 3"},
                      {"first_word", 77},
                      {"mask", "0x00000080"}});
  return record;
}

/// Marks the run as one with requested injections.
inline void ask_for(std::vector<Record>& records, const std::vector<std::string>& specs) {
  for (Record& record : records)
    if (record.kind == RecordKind::start) record.body["options"]["inject"] = specs;
}

/// Adds suppressed faults to the last record of rank 0.
inline void hold_back(std::vector<Record>& records, const std::string& kind, int rank, int count,
                      double last_time = 1020) {
  for (Record& record : records)
    if (record.kind == RecordKind::end && record.rank == 0)
      record.body["fault_repeats"].push_back({{"kind", kind},
                                              {"detector", "patrol"},
                                              {"rank", rank < 0 ? Json() : Json(rank)},
                                              {"count", count},
                                              {"last_time", last_time}});
}

/// A run of `size` ranks without any fault.
inline std::vector<Record> good_run(int size) {
  std::vector<Record> records;
  for (int rank = 0; rank < size; ++rank) records.push_back(start(rank, size));
  for (int rank = 0; rank < size; ++rank) records.push_back(progress(rank));
  for (int rank = 0; rank < size; ++rank) records.push_back(end(rank));
  return records;
}

/// A run that resumes an interrupted one: every rank begins part `part` of it.
inline std::vector<Record> resumed(std::vector<Record> records, int size, int part = 1) {
  for (Record record : good_run(size)) {
    record.time += 1000 * part;
    if (record.kind == RecordKind::start) record.body["part"] = part;
    records.push_back(std::move(record));
  }
  return records;
}

/// Mutable reference to the record of that kind and rank.
inline Record& find(std::vector<Record>& records, RecordKind kind, int rank) {
  for (Record& record : records)
    if (record.kind == kind && record.rank == rank) return record;
  throw std::out_of_range("no such record");
}

inline void remove(std::vector<Record>& records, RecordKind kind, int rank) {
  std::erase_if(records, [&](const Record& record) { return record.kind == kind && record.rank == rank; });
}

inline constexpr const char* says_nothing =
    "faults were injected with --inject: this verdict says nothing about the hardware";

}  // namespace egt::fixtures
