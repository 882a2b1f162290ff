#include "egt/core/part_report.hpp"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/units.hpp"

namespace egt {

const char* to_string(WorkKind kind) {
  constexpr const char* names[] = {"gemm",   "transcendental", "update", "all_reduce",   "memory",
                                   "copies", "files",          "vote",   "vote_one_unit"};
  return names[static_cast<int>(kind)];
}

void add(VerifiedWork& sum, const VerifiedWork& more) {
  for (const WorkField& field : work_fields)
    std::visit([&](auto member) { sum.*member += more.*member; }, field.member);
}

bool any(const VerifiedWork& work, const WorkField& field) {
  return std::visit([&](auto member) { return work.*member > 0; }, field.member);
}

bool any(const VerifiedWork& work) {
  return std::any_of(std::begin(work_fields), std::end(work_fields),
                     [&](const WorkField& field) { return any(work, field); });
}

std::string amount_text(const VerifiedWork& work, const WorkField& field) {
  return std::visit(
      [&](auto member) {
        if (field.unit == WorkField::Unit::byte) return format_bytes(work.*member);
        if (field.unit == WorkField::Unit::flop)
          return format_amount(static_cast<double>(work.*member), "FLOP");
        return fmt::format("{}", work.*member);
      },
      field.member);
}

Json work_to_json(const VerifiedWork& work) {
  Json json = Json::object();
  for (const WorkField& field : work_fields)
    std::visit([&](auto member) { json[field.key] = work.*member; }, field.member);
  return json;
}

VerifiedWork work_from_json(const Json& json) {
  VerifiedWork work;
  for (const WorkField& field : work_fields)
    std::visit(
        [&](auto member) {
          using Value = std::remove_reference_t<decltype(work.*member)>;
          work.*member = value_at<Value>(json, field.key).value_or(0);
        },
        field.member);
  return work;
}

void add(LoadFigures& sum, const LoadFigures& more) {
  for (const auto& [share, seconds] : load_fields)
    if (more.*seconds) sum.*seconds = (sum.*seconds).value_or(0) + *(more.*seconds);
  if (more.alone.is_object()) sum.alone.update(more.alone);
  if (!more.mix.is_null()) sum.mix = more.mix;
}

Json part_to_json(const PartReport& part) {
  Json shares = Json::array();
  for (const WorkShare& one : part.shares)
    shares.push_back({{"kind", to_string(one.kind)},
                      {"precision", one.precision.empty() ? Json() : Json(one.precision)},
                      {"done", one.done},
                      {"verified", one.verified}});
  return {{"name", part.name},
          {"description", part.description},
          {"success", part.success},
          {"failure", part.failure.empty() ? Json() : Json(part.failure)},
          {"of_all_ranks", part.of_all_ranks},
          {"figures", part.figures.is_null() ? Json::object() : part.figures},
          {"work", work_to_json(part.work)},
          {"shares", shares}};
}

}  // namespace egt
