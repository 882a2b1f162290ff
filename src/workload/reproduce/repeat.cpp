#include "workload/reproduce/repeat.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "workload/memory/repeated_gemm.hpp"
#include "workload/memory/repeated_sines.hpp"
#include "workload/vote/vote_round.hpp"

namespace egt {
namespace {

Result<Repetitions> vote_again(Device& device, const Json& call, bool strikes,
                               const RepetitionLimits& limits) {
  EGT_TRY_ASSIGN(UnitVote vote, parse_vote(call));
  if (!strikes) vote.fault = {};
  EGT_TRY_ASSIGN(const auto round, VoteRound::create(device));
  return repeat_vote(*round, vote, 0, limits, {});
}

Result<Repetitions> multiply_again(Device& device, const Json& call, bool strikes,
                                   const RepetitionLimits& limits) {
  EGT_TRY_ASSIGN(BlockGemm gemm, parse_block_gemm(call));
  if (!strikes) gemm.fault.count = 0;
  if (const Support support = device.supports(gemm.precision); !support.yes())
    return Status(StatusCode::unsupported, support.why_not);
  const std::uint64_t block_bytes = 2 * (static_cast<std::uint64_t>(gemm.pair) + 1) * gemm.matrix_bytes();
  EGT_TRY_ASSIGN(const Buffer block, device.allocate(block_bytes));
  EGT_TRY_ASSIGN(const Buffer result, device.allocate(static_cast<std::uint64_t>(gemm.rows * gemm.rows) *
                                                      size_of(sum_type(gemm.precision))));
  EGT_TRY_ASSIGN(const auto pipeline, OperationPipeline::create(device, StreamPriority::background,
                                                                StreamUse::all, "a repeated GEMM"));
  const WordsView words{block.as<std::uint32_t>(), block_bytes / sizeof(std::uint32_t)};
  EGT_TRY(device.fill(words, gemm.operands(), pipeline->stream()));
  return repeat_gemm(device, gemm, gemm.on(block.data(), result.data()), *pipeline, limits, {});
}

Result<Repetitions> sines_again(Device& device, const Json& call, bool, const RepetitionLimits& limits) {
  EGT_TRY_ASSIGN(const BlockSines sines, parse_block_sines(call));
  EGT_TRY_ASSIGN(const Buffer block, device.allocate(sines.end() * sizeof(std::uint32_t)));
  EGT_TRY_ASSIGN(const auto pipeline, OperationPipeline::create(device, StreamPriority::background,
                                                                StreamUse::all, "repeated sines"));
  return repeat_sines(device, sines, block.words(), *pipeline, limits, {});
}

/// An operation that reproducers can repeat.
struct Kind {
  const char* operation;
  Status (*check)(const Json& call);
  Result<Repetitions> (*repeat)(Device& device, const Json& call, bool strikes,
                                const RepetitionLimits& limits);
};
constexpr Kind kinds[] = {
    {UnitVote::name, [](const Json& call) { return parse_vote(call).status(); }, vote_again},
    {Gemm::name, [](const Json& call) { return parse_block_gemm(call).status(); }, multiply_again},
    {SineExponential::name, [](const Json& call) { return parse_block_sines(call).status(); }, sines_again},
};

Result<const Kind*> kind_of(const Reproducer& reproducer) {
  const auto* const kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const Kind& one) {
    return one.operation == reproducer.operation;
  });
  if (kind == std::end(kinds))
    return Status(StatusCode::invalid_argument, "is no reproducer: its operation is unknown");
  return kind;
}

}  // namespace

Status check_call(const Reproducer& reproducer) {
  EGT_TRY_ASSIGN(const Kind* const kind, kind_of(reproducer));
  return kind->check(reproducer.call);
}

bool is_accused(const Reproducer& reproducer, const DeviceInfo& device, int rank) {
  const std::string uuid = text_at(reproducer.fault, "device_uuid");
  return uuid.empty() ? value_at<int>(reproducer.fault, "rank") == rank : uuid == device.uuid;
}

bool has_injected_fault(const Reproducer& reproducer) {
  return !member(reproducer.call, "fault").is_null();
}

Result<Repetitions> repeat(Device& device, const Reproducer& reproducer, bool strikes,
                           const RepetitionLimits& limits) {
  EGT_TRY_ASSIGN(const Kind* const kind, kind_of(reproducer));
  return kind->repeat(device, reproducer.call, strikes, limits);
}

void repeat_for_peer(Environment& environment, double seconds, const std::function<bool()>& is_stopped) {
  const RankPlace& place = environment.place;
  const auto begun = Clock::now();
  std::error_code error;
  std::vector<std::filesystem::path> files;
  const auto folder = std::filesystem::path(environment.directory) / "reproduce";
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".json") files.push_back(entry->path());  // complete
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    if (seconds_since(begun) >= seconds || is_stopped()) return;
    const auto text = read_regular_file(file, max_reproducer_bytes);
    if (!text.ok()) continue;
    const auto read = parse_reproducer(text.value());
    if (!read.ok() || !check_call(read.value()).ok()) continue;
    const Reproducer& one = read.value();
    if (one.host_id != place.host_id || one.device_model != environment.device_model ||
        (one.local_rank + 1) % place.local_size != place.local_rank || one.local_rank == place.local_rank)
      continue;
    const std::string name = "reproduce/" + file.filename().string();
    const auto counts =
        repeat(environment.device, one, false,
               {.seconds = std::min(RepetitionLimits().seconds, seconds - seconds_since(begun)),
                .is_stopped = is_stopped});
    if (counts.ok())
      report_repetitions(environment, name, counts.value());
    else
      environment.records.warning(
          fmt::format("{}: not repeated on rank {}: {}", name, place.rank, counts.status().what()));
  }
}

}  // namespace egt
