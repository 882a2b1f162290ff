#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/verdict.hpp"
#include "report/console/console_style.hpp"

/// The console's texts, line by line; pure functions. No text ends with a newline.
namespace egt {

enum class Colour { red, green, yellow };

/// `text` in that colour if `has_colours`.
std::string coloured(bool has_colours, Colour colour, const std::string& text);

std::string banner_text(const ConsoleStyle& style);
bool several_hosts(const std::vector<Json>& starts);
/// "GPU 0 (NVIDIA H200): 143771 MB total, 143204 MB free"
std::string device_text(const Json& start, bool name_host);
/// "Network configuration:", the global batch size and the architecture.
std::string network_text(const Json& start);
/// "Host defaults: --batch 128, .."; empty if there are none.
std::string host_defaults_text(const Json& start);
/// "GPU 0 Memory: 129394/143771 MB (90.0%)"
std::string memory_text(const std::string& label, std::uint64_t used_bytes, std::uint64_t total_bytes);
/// "EXTREME EPOCH 0 completed in 4247 ms: .."; omits unmeasured values.
std::string epoch_text(const Json& epoch, std::size_t ranks);
/// "FAULT GPU 1, UUID GPU-1234: memory in block 3", and indented lines with details. `start`: start body of
/// the fault's rank, null if unknown.
std::string fault_text(const Record& record, const Json& start, bool name_host);
/// "Injected on rank 1, step 20: weight, layer 3, bits 0x00000080 (weights of layer 3)"
std::string injection_text(const Record& record);

/// "step 120, 30 s elapsed, 5.00 GB verified, 402 TFLOP/s, 61 C, 600 W"; omits unmeasured values.
std::string progress_text(const Json& progress);
/// Text of a record of any kind, one line except for faults. `start`: see fault_text. `ranks`: number of
/// ranks known so far.
std::string line_of(const Record& record, const Json& start, std::size_t ranks, bool name_host);
/// Completed fraction of the time or step limit, whichever is further, 0 to 1; std::nullopt: neither is
/// planned.
std::optional<double> fraction_done(const Json& start, const Json& progress);
/// "[####----] 42 %  21 s elapsed, 29 s left, step 120", fitted to the terminal's width; without a limit "21
/// s elapsed, step 120".
std::string bar_text(const ConsoleStyle& style, const Json& start, const Json& progress);
/// "2026-01-31T23:59:59.123Z  42 %  21 s elapsed, 29 s left, step 120, EXTREME EPOCH 3 .., 0 faults"; `time`
/// in seconds since 1970, `progress` by rank. `is_locating`: a fault was reported before it was located.
std::string status_line(double time, const Json& start, const std::map<int, Json>& progress,
                        const std::string& epoch, std::uint64_t faults, bool is_locating);
std::string row_header();
/// Utilization, memory, temperature, power, TFLOP/s, verified bytes and faults of one rank.
std::string row_text(const std::string& label, const Json& start, const Json& progress, std::uint64_t faults);
/// Width of UTF-8 text; an emoji has two columns.
int columns_of(const std::string& text);
/// The text's first `columns` columns.
std::string clipped(const std::string& text, int columns);

/// The table of the devices, the verdict with its reasons, the verified work, and a summary of load and
/// steps.
std::string report_text(const Json& result);
/// Final lines of a run: as report_text, in the width of the terminal.
/// Also lists the files, including report.html if it exists and result.json if `has_result`.
std::string verdict_text(const ConsoleStyle& style, const Verdict& verdict, const Json& result,
                         const std::string& directory, bool has_result);

}  // namespace egt
