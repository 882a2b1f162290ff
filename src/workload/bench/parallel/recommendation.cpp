#include <algorithm>

#include <fmt/format.h>

#include "egt/core/units.hpp"
#include "workload/bench/scaling_entry.hpp"

namespace egt {
namespace {

bool is_candidate(const BenchEntry& entry) {
  return entry.step && entry.success() && entry.trial.mode != BenchMode::single &&
         entry.trial.mode != BenchMode::strong && entry.trial.mode != BenchMode::compressed;
}

std::string rate_of(const BenchEntry& entry) {
  return fmt::format("{} {}/s", format_amount(*entry.items_per_second()), items_of(entry.trial.workload));
}

/// The shares of its step that an entry spends in communication and in the bubble.
std::string losses_of(const BenchEntry& entry) {
  std::string text;
  if (const auto exposed = entry.exposed_communication_share())
    text += fmt::format(", {:.1f} % of its step exposed communication", 100 * *exposed);
  if (entry.bubble_share) text += fmt::format(", {:.1f} % its bubble", 100 * *entry.bubble_share);
  return text;
}

/// The entries of `of`'s test on as many devices, the fastest first.
std::vector<BenchEntry*> rivals(std::vector<BenchEntry>& entries, const BenchTrial& of) {
  std::vector<BenchEntry*> all;
  for (BenchEntry& entry : entries)
    if (is_candidate(entry) && entry.trial.name == of.name && entry.trial.devices() == of.devices())
      all.push_back(&entry);
  std::stable_sort(all.begin(), all.end(), [](const BenchEntry* a, const BenchEntry* b) {
    return *a->items_per_second() > *b->items_per_second();
  });
  return all;
}

/// Why the first entry of the same test and devices as `of` was not possible; empty: all were.
std::string impossible(const std::vector<BenchEntry>& entries, const BenchTrial& of) {
  for (const BenchEntry& entry : entries)
    if (entry.trial.name == of.name && entry.trial.devices() == of.devices() && !entry.not_possible.empty())
      return fmt::format("; {} is not possible: {}", mode_text(entry.trial), entry.not_possible);
  return "";
}

}  // namespace

void recommend(std::vector<BenchEntry>& entries) {
  std::size_t most = 0;
  for (const BenchEntry& entry : entries) most = std::max(most, entry.trial.ranks.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const BenchTrial trial = entries[i].trial;
    if (!trial.plan.is_split() || trial.ranks.size() != most) continue;
    const auto all = rivals(entries, trial);
    if (all.empty() || !all.front()->recommendation.empty()) continue;
    std::string text =
        fmt::format("{}: use {} on these {} devices: {}{}", trial.name, mode_text(all.front()->trial), most,
                    rate_of(*all.front()), losses_of(*all.front()));
    if (all.size() > 1)
      text += fmt::format(", {:.2f} times the next, {}: {}{}",
                          *all[0]->items_per_second() / *all[1]->items_per_second(), mode_text(all[1]->trial),
                          rate_of(*all[1]), losses_of(*all[1]));
    all.front()->recommendation = text + impossible(entries, trial);
  }
}

}  // namespace egt
