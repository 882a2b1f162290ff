#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "command/commands.hpp"
#include "command/platform.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/ranks/agreement.hpp"
#include "workload/reproduce/repeat.hpp"

namespace egt {
namespace {

/// Repetitions end after this time. A run has no such limit.
constexpr double max_seconds = 300;

Status wrong_file(const std::string& path, const std::string& why) {
  return {StatusCode::invalid_argument, fmt::format("reproduce {}: {}", printable(path), why)};
}

Result<Reproducer> parse_file(const std::string& path, const std::string& text) {
  const auto read = parse_reproducer(text);
  Status usable = read.status();
  if (usable.ok()) usable = check_call(read.value());
  if (!usable.ok()) return wrong_file(path, usable.what());
  return read;
}

/// Rank 0 reads the file, which other nodes need not have.
Result<Reproducer> share_file(const std::string& path, Control& control) {
  std::string text;
  Status own;
  if (control.place().rank == 0) {
    auto read = read_regular_file(path, max_reproducer_bytes);
    if (read.ok()) own = parse_file(path, text = std::move(read.value())).status();
    if (!read.ok()) own = wrong_file(path, read.status().what() + "; name a file of DIR/reproduce/");
  }
  EGT_TRY(agree(control, own));
  EGT_TRY_ASSIGN(text, control.broadcast(text));
  return parse_file(path, text);
}

std::string describe(const Reproducer& one) {
  const Json& fault = one.fault;
  std::string text = fmt::format("{} fault on rank {}", printable(text_at(fault, "kind")),
                                 value_at<int>(fault, "rank").value_or(-1));
  if (const auto step = value_at<std::int64_t>(fault, "step")) text += fmt::format(", step {}", *step);
  text += fmt::format(": {}\n", printable(text_at(fault, "where")));
  if (has_injected_fault(one))
    text += fmt::format("The fault was injected, so it strikes only on {}.\n",
                        text_at(fault, "device_uuid").empty()
                            ? fmt::format("rank {}", value_at<int>(fault, "rank").value_or(-1))
                            : printable(text_at(fault, "device_uuid")));
  return text;
}

/// Peers that compute correctly say nothing about the device of the fault.
std::string not_tested(const Reproducer& one, int ranks) {
  const int rank = value_at<int>(one.fault, "rank").value_or(-1);
  const std::string uuid = text_at(one.fault, "device_uuid");
  return fmt::format("Incomplete: the device of the fault, {}, is not among the tested ones{}.\n",
                     uuid.empty() ? fmt::format("rank {}", rank) : printable(uuid),
                     rank < ranks ? "" : fmt::format("; start with mpirun --quiet -np {}", rank + 1));
}

std::string device_text(const DeviceInfo& info) {
  return info.backend == "host" ? fmt::format("host ({})", info.name)
                                : fmt::format("GPU {} ({}, {})", info.index, info.name, info.uuid);
}

}  // namespace

Result<int> run_reproduce(const Options& options, MpiSession&, Control& control, Clock::time_point) {
  EGT_TRY_ASSIGN(const Reproducer reproducer, share_file(options.path, control));
  const auto choice = choose_backend(options.common);
  EGT_TRY(agree(control, choice.status()));
  const int rank = control.place().rank;
  const auto device = open_device(choice.value().backend, options.common, control.place());
  EGT_TRY(agree(control, device.status()));
  const DeviceInfo& info = device.value()->info();
  EGT_TRY(refuse_shared_devices(control, info));
  const bool accused = is_accused(reproducer, info, rank);
  const auto counts = repeat(*device.value(), reproducer, accused, {.seconds = max_seconds});
  EGT_TRY(agree(control, counts.status()));
  EGT_TRY_ASSIGN(const auto lines, control.gather(fmt::format("{} on rank {}, {}\n", to_text(counts.value()),
                                                              rank, device_text(info))));
  EGT_TRY_ASSIGN(const auto is_there, all_gather(control, accused ? "1" : "0"));
  const bool is_tested = std::find(is_there.begin(), is_there.end(), "1") != is_there.end();
  if (rank == 0) fmt::print("{}", describe(reproducer));
  for (const std::string& line : lines) fmt::print("{}", line);
  if (rank == 0 && !is_tested) fmt::print("{}", not_tested(reproducer, control.place().size));
  EGT_TRY_ASSIGN(const auto failed, all_gather(control, std::to_string(counts.value().failed)));
  const bool has_failed =
      std::any_of(failed.begin(), failed.end(), [](const std::string& one) { return one != "0"; });
  return has_failed ? exit_code::fault : is_tested ? exit_code::pass : exit_code::incomplete;
}

}  // namespace egt
