#include "egt/workload/injector.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace egt {

Injector::Injector(std::vector<Injection> all, const RankPlace& place, RecordQueue& records,
                   InjectionGate gate)
    : all_(std::move(all)), rank_(place.rank), records_(records), gate_(std::move(gate)) {
  for (const Injection& injection : all_)
    if (injection.rank == rank_) waiting_.push_back(injection);
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Injection& a, const Injection& b) { return a.step < b.step; });
}

std::optional<Injection> Injector::take(InjectionKind kind, std::int64_t step, const InjectionGate& which) {
  const std::lock_guard lock(mutex_);
  const auto due = std::find_if(waiting_.begin(), waiting_.end(), [&](const Injection& waiting) {
    return waiting.kind == kind && waiting.step <= step && (!which || which(waiting));
  });
  if (due == waiting_.end() || (gate_ && !gate_(*due))) return std::nullopt;
  const Injection taken = *due;
  waiting_.erase(due);
  return taken;
}

bool Injector::waits(InjectionKind kind, std::int64_t step) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Injection& waiting) { return waiting.kind == kind && waiting.step <= step; });
}

void Injector::report(const Injection& injection, std::int64_t step, const Flip& flip, std::string where) {
  Json body = to_json(injection);
  body["struck_step"] = step;
  body["where"] = std::move(where);
  body["first_word"] = flip.first;
  body["mask"] = fmt::format("0x{:08x}", flip.mask);
  records_.emit(RecordKind::injection, step, std::move(body));
}

void Injector::report(const Injection& injection, std::int64_t step, std::string where) {
  Json body = to_json(injection);
  body["struck_step"] = step;
  body["where"] = std::move(where);
  records_.emit(RecordKind::injection, step, std::move(body));
}

bool Injector::plans(InjectionKind kind) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Injection& one) { return one.kind == kind; });
}

}  // namespace egt
