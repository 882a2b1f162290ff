#include "workload/common/reproducer.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/record_queue.hpp"

namespace egt {
namespace {

constexpr int file_format = 1;

Status damaged(std::string what) {
  return {StatusCode::invalid_argument, "is no reproducer: " + std::move(what)};
}

}  // namespace

Json to_json(const Reproducer& reproducer) {
  return {{"format", file_format},
          {"operation", reproducer.operation},
          {"call", reproducer.call},
          {"fault", reproducer.fault},
          {"device_model", reproducer.device_model},
          {"host_id", reproducer.host_id},
          {"local_rank", reproducer.local_rank}};
}

Result<Reproducer> parse_reproducer(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return damaged("it is not a JSON object");
  const auto format = value_at<int>(json, "format");
  if (!format) return damaged("'format' is missing");
  if (*format != file_format)
    return damaged(fmt::format("its format is {}, this program reads {}", *format, file_format));
  Reproducer one{.operation = text_at(json, "operation"),
                 .call = member(json, "call"),
                 .fault = member(json, "fault"),
                 .device_model = text_at(json, "device_model"),
                 .host_id = text_at(json, "host_id")};
  if (!one.call.is_object() || text_at(one.fault, "kind").empty())
    return damaged("'call' or 'fault' is missing");
  EGT_TRY_ASSIGN(const std::int64_t local_rank, number_in_call(json, "local_rank", 0, 1 << 20));
  EGT_TRY(number_in_call(one.fault, "rank", 0, 1 << 30).status());
  one.local_rank = static_cast<int>(local_rank);
  return one;
}

Result<std::int64_t> number_in_call(const Json& call, const char* key, std::int64_t least,
                                    std::int64_t most) {
  const Json& number = member(call, key);
  const bool is_large = number.is_number_unsigned() && number.get<std::uint64_t>() > INT64_MAX;
  if (!number.is_number_integer() || is_large || number.get<std::int64_t>() < least ||
      number.get<std::int64_t>() > most)
    return damaged(fmt::format("'{}' is not a whole number of {} to {}", key, least, most));
  return number.get<std::int64_t>();
}

Result<std::uint64_t> seed_in_call(const Json& call) {
  const Json& seed = member(call, "seed");
  if (!seed.is_number_unsigned()) return damaged("'seed' is not a whole number");
  return seed.get<std::uint64_t>();
}

std::string to_text(const Repetitions& counts) {
  return fmt::format("failed {} of {}", counts.failed, counts.of);
}

Result<Repetitions> repeat(const RepetitionLimits& limits, const std::function<Result<bool>()>& is_right) {
  const auto begun = Clock::now();
  Repetitions counts;
  while (counts.of < limits.count && seconds_since(begun) < limits.seconds &&
         !(limits.is_stopped && limits.is_stopped())) {
    const Result<bool> right = is_right();
    if (right.status().code() == StatusCode::stopped) break;
    EGT_TRY(right.status());
    ++counts.of;
    counts.failed += !right.value();
  }
  return counts;
}

Result<Repetitions> repeat_digest(const RepetitionLimits& limits, const std::function<Result<Digest>()>& call,
                                  const std::function<Result<bool>()>& is_right) {
  struct Answer {
    Digest digest;
    bool is_right = false;
    int count = 0;
  };
  std::vector<Answer> answers;
  EGT_TRY_ASSIGN(Repetitions counts, repeat(limits, [&]() -> Result<bool> {
                   EGT_TRY_ASSIGN(const Digest digest, call());
                   auto answer = std::find_if(answers.begin(), answers.end(),
                                              [&](const Answer& one) { return one.digest == digest; });
                   if (answer == answers.end()) {
                     EGT_TRY_ASSIGN(const bool right, is_right());
                     answer = answers.insert(answers.end(), {.digest = digest, .is_right = right});
                   }
                   ++answer->count;
                   return true;
                 }));
  int right = 0;
  for (const Answer& one : answers)
    if (one.is_right) right = std::max(right, one.count);
  counts.failed = counts.of - right;
  return counts;
}

ReproducerFiles::ReproducerFiles(Environment& environment) : environment_(environment) {
  const std::filesystem::path directory = environment_.directory;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory / "reproduce", error), end; !error && entry != end;
       entry.increment(error))
    names_.insert("reproduce/" + entry->path().filename().string());
}

/// Empty: the fault gets no file.
std::string ReproducerFiles::name_of(const Fault& fault) {
  if (environment_.directory.empty() || places_.size() >= RecordQueue::max_places ||
      !places_.insert(fmt::format("{} {}", fault.where, fault.offset)).second)
    return {};
  const std::string step = fault.step < 0 ? "start" : fmt::format("step{}", fault.step);
  const std::string stem = fmt::format("reproduce/{}-rank{}-{}", fault.kind, fault.rank, step);
  std::string name = stem + ".json";
  for (int number = 2; !names_.insert(name).second; ++number) name = fmt::format("{}-{}.json", stem, number);
  return name;
}

std::string ReproducerFiles::emit(Fault fault, const char* operation, const Json& call) {
  fault.reproducer = name_of(fault);
  environment_.records.emit(fault);
  if (fault.reproducer.empty()) return {};
  const RankPlace& place = environment_.place;
  const std::filesystem::path directory = environment_.directory;
  Json content = to_json(Reproducer{operation, call, to_json(fault), environment_.device_model, place.host_id,
                                    place.local_rank});
  content["program_version"] = environment_.program_version;
  std::error_code error;
  std::filesystem::create_directories(directory / "reproduce", error);
  const Status written =
      write_atomically(directory / fault.reproducer, one_line(content) + "\n", Durability::system);
  if (!written.ok())
    environment_.records.warning(fmt::format("no reproducer of a {} fault: {}", fault.kind, written.what()));
  return fault.reproducer;
}

void report_repetitions(Environment& environment, const std::string& file, const Repetitions& counts) {
  const DeviceInfo& info = environment.device.info();
  environment.records.emit(
      RecordKind::notice, -1,
      {{"level", "info"},
       {"text", fmt::format("{} on rank {} ({}); to repeat: mpirun --quiet -np {} extreme_gpu_trainer "
                            "reproduce {}/{}",
                            to_text(counts), environment.place.rank,
                            info.backend == "host" ? "host" : fmt::format("GPU {}", info.index),
                            environment.place.size, environment.directory, file)},
       {"reproducer", file},
       {"failed", counts.failed},
       {"of", counts.of}});
}

}  // namespace egt
