#include "judge/action.hpp"

#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "judge/expectations.hpp"
#include "judge/xid.hpp"

namespace egt {
namespace {

struct ActionRow {
  Action action;
  const char* name;     ///< in result.json and metrics.prom
  const char* text;     ///< one line
  const char* command;  ///< to run first; empty: none
};

constexpr auto action_rows = std::to_array<ActionRow>({
    {Action::none, "none", "nothing to do", ""},
    {Action::finish_run, "finish-run", "repeat the run to its end, or continue it with --resume", ""},
    {Action::run_longer, "run-longer", "repeat the run with a longer --duration", ""},
    {Action::test_links, "test-links", "run links to find the link or the device that fails",
     "nvidia-smi topo -m"},
    {Action::check_node, "check-node", "read the kernel log for Xids and killed processes, then repeat",
     "dmesg -T --level=err,warn"},
    {Action::check_power, "check-power", "check power supplies, cables and the power limit, then repeat",
     "nvidia-smi -q -d POWER,PERFORMANCE"},
    {Action::check_cooling, "check-cooling", "check fans, airflow and inlet temperature, then repeat",
     "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"},
    {Action::reseat, "reseat", "reseat the GPU, its riser and its link cables, then run links",
     "nvidia-smi nvlink -e"},
    {Action::reset_gpu, "reset-gpu", "reset the GPU and repeat with --preset memory; the same GPU again: RMA",
     "nvidia-smi -q -d ECC,ROW_REMAPPER"},
    {Action::reboot_node, "reboot-node", "reboot the node and repeat; the same GPU again: RMA",
     "dmesg -T --level=err,warn"},
    {Action::replace_drive, "replace-drive",
     "repeat with another --io-dir; only this drive fails: replace it", "smartctl --all DEVICE"},
    {Action::isolate_gpu, "isolate-gpu",
     "isolate the node and repeat with --duration 1h; the same GPU again: RMA with report.html",
     "nvidia-smi -q -d ECC,ROW_REMAPPER"},
    {Action::replace_gpu, "replace-gpu", "isolate the node and have the GPU replaced: RMA with report.html",
     "nvidia-smi -q -d ECC,ROW_REMAPPER"},
});

struct EvidenceRow {
  std::string_view kind;   ///< prefix of the kind; empty: any
  std::string_view where;  ///< prefix of the place; empty: any
  Action certain;          ///< one node is to blame
  Action ambiguous;        ///< nodes share the blame
};

/// The first row that matches decides. Xids have their action in the catalog: see judge/xid.hpp.
constexpr auto fault_rows = std::to_array<EvidenceRow>({
    {"remap", "a row of memory could not", Action::replace_gpu, Action::replace_gpu},
    {"remap", "", Action::reset_gpu, Action::reset_gpu},
    {"ecc", "", Action::reset_gpu, Action::reset_gpu},
    {"memory", "", Action::reset_gpu, Action::run_longer},
    {"device-error", "", Action::reset_gpu, Action::reset_gpu},
    {"gpu-lost", "", Action::reboot_node, Action::reboot_node},
    {"nvlink", "", Action::reseat, Action::reseat},
    {"pcie", "", Action::reseat, Action::reseat},
    {"link", "", Action::reseat, Action::test_links},
    {"collective", "", Action::reseat, Action::test_links},
    {"all-reduce", "", Action::reseat, Action::test_links},
    {"file-", "", Action::replace_drive, Action::replace_drive},
    {"", "", Action::isolate_gpu, Action::run_longer},
});

constexpr auto finding_rows = std::to_array<EvidenceRow>({
    {"remap", "a row of memory waits", Action::reset_gpu, Action::reset_gpu},
    {"remap", "", Action::replace_gpu, Action::replace_gpu},
    {"ecc", "", Action::reset_gpu, Action::reset_gpu},
    {"temperature", "", Action::check_cooling, Action::check_cooling},
    {"throttle", "hw_power_brake", Action::check_power, Action::check_power},
    {"throttle", "", Action::check_cooling, Action::check_cooling},
    {"power", "", Action::check_power, Action::check_power},
    {"link", "", Action::reseat, Action::test_links},
    {"nvswitch", "", Action::reboot_node, Action::reboot_node},
    {"outlier", "", Action::run_longer, Action::run_longer},
    {"history", "corrected memory errors", Action::reset_gpu, Action::reset_gpu},
    {"history", "", Action::check_cooling, Action::check_cooling},
    {"starved", "", Action::run_longer, Action::run_longer},
    {"", "", Action::check_node, Action::check_node},
});

template <typename Rows>
Action action_of(const Rows& rows, const Json& evidence, bool is_certain) {
  const std::string kind = text_at(evidence, "kind"), where = text_at(evidence, "where");
  for (const EvidenceRow& row : rows)
    if (kind.starts_with(row.kind) && where.starts_with(row.where))
      return is_certain ? row.certain : row.ambiguous;
  return Action::check_node;  // not reached: the last row matches all
}

/// `actual` is the number: text in faults, a number in findings, and absent in repeats.
std::optional<Action> action_of_xid(const Json& evidence) {
  if (text_at(evidence, "kind") != "xid") return std::nullopt;
  unsigned xid = 0;
  if (const auto number = value_at<double>(evidence, "actual"))
    xid = static_cast<unsigned>(*number);
  else
    parse_whole(text_at(evidence, "actual"), xid);
  return xid_meaning(xid).action;
}

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < action_rows.size(); ++i)
    if (action_rows[i].action != static_cast<Action>(i)) return false;
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

Action action_of_fault(const Json& fault, bool is_certain) {
  if (const auto action = action_of_xid(fault)) return *action;
  return action_of(fault_rows, fault, is_certain);
}

/// A slow link belongs to both of its ends.
Action action_of_finding(const Json& finding) {
  if (const auto action = action_of_xid(finding)) return *action;
  if (text_at(finding, "kind") == "expectation")
    if (const auto action = action_of_expectation(text_at(finding, "where"))) return *action;
  return action_of(finding_rows, finding, member(finding, "ranks").size() < 2);
}

Json to_json(Action action, int rank) {
  const ActionRow& row = action_rows[static_cast<std::size_t>(action)];
  return {{"name", row.name},
          {"text", row.text},
          {"command", *row.command == '\0' ? Json() : Json(row.command)},
          {"rank", rank < 0 ? Json() : Json(rank)}};
}

Json none_since_injected(Action action, int rank) {
  Json none = to_json(Action::none, -1);
  if (action != Action::none)
    none["text"] = fmt::format("none, the fault was injected; after a real one: {}{}",
                               action_rows[static_cast<std::size_t>(action)].text,
                               rank < 0 ? "" : fmt::format(" (rank {})", rank));
  return none;
}

}  // namespace egt
