#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/json_access.hpp"
#include "judge/device_use.hpp"
#include "report/tables/summary.hpp"

namespace egt {
namespace {

constexpr double giga = 1e9;

std::string use_text(const DeviceUse& use) {
  const char* const state = use.why_idle.empty() ? "ACTIVE" : use.is_lost ? "LOST" : "IDLE";
  std::string text = fmt::format("   {}: ", use.label);
  if (use.used_bytes && use.total_bytes && *use.total_bytes > 0)
    text += fmt::format("{:.2f} GB / {:.1f} GB ({:.1f}%) ", *use.used_bytes / giga, *use.total_bytes / giga,
                        100 * *use.used_bytes / *use.total_bytes);
  text += state;
  return use.figures.empty() ? text : fmt::format("{}\n      {}", text, use.figures);
}

/// "All 4 GPUs are actively being used!", or the unused ones with the reason.
std::string conclusion(const std::vector<DeviceUse>& devices, const char* word) {
  std::vector<std::string> idle;
  for (const DeviceUse& use : devices)
    if (!use.why_idle.empty())
      idle.push_back(fmt::format("{} (rank {} on {}): {}", use.label, use.rank, use.hostname, use.why_idle));
  if (!idle.empty())
    return fmt::format("   {} of {} {}s {} NOT being used: {}", idle.size(), devices.size(), word,
                       idle.size() == 1 ? "is" : "are", fmt::join(idle, "; "));
  if (devices.size() == 1) return fmt::format("   The one {} is actively being used!", word);
  return fmt::format("   All {} {}s are actively being used!", devices.size(), word);
}

/// YES, or the ranks without it.
std::string answer(const VerifiedOperation& operation) {
  if (!operation.left_out.empty()) return "-";
  std::vector<int> not_on;
  for (const OperationOnDevice& one : operation.devices)
    if (!one.verified()) not_on.push_back(one.rank);
  if (not_on.empty()) return "YES";
  return fmt::format("NO: rank{} {}", not_on.size() == 1 ? "" : "s", fmt::join(not_on, ", "));
}

std::string how(const VerifiedOperation& operation) {
  if (!operation.left_out.empty()) return fmt::format("left out: {}", operation.left_out);
  if (!operation.failure.empty()) return operation.failure;
  const bool is_verified = std::all_of(operation.devices.begin(), operation.devices.end(),
                                       [](const OperationOnDevice& one) { return one.verified(); });
  return is_verified ? operation.how : "never";
}

std::string table(const std::vector<VerifiedOperation>& operations, const std::string& head) {
  std::size_t width = head.size();
  for (const VerifiedOperation& operation : operations) width = std::max(width, answer(operation).size());
  std::string text = fmt::format("   {:<22} | {:<{}} | How it was verified\n   {:-<23}+{:-<{}}+{:-<40}\n",
                                 "Operation", head, width, "", "", width + 2, "");
  for (const VerifiedOperation& operation : operations)
    text +=
        fmt::format("   {:<22} | {:<{}} | {}\n", operation.name, answer(operation), width, how(operation));
  return text;
}

}  // namespace

std::string verify_text(const Json& result) {
  const Readiness readiness = readiness_of(result);
  const std::size_t count = readiness.devices.size();
  if (count == 0) return {};
  const char* const word = readiness.devices.front().label.starts_with("GPU") ? "GPU" : "CPU";
  std::string text = fmt::format(
      "MULTI-{0} CONFIGURATION:\nTotal {0}s Available: {1}\nMulti-{0} Training: {2}\n\n{0} Utilization "
      "Check:\n",
      word, count, count > 1 ? "ENABLED" : "DISABLED");
  for (const DeviceUse& use : readiness.devices) text += use_text(use) + "\n";
  text += conclusion(readiness.devices, word) + "\n\n";
  return text + table(readiness.operations, fmt::format("All {}s", word));
}

}  // namespace egt
