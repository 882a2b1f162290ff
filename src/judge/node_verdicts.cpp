#include "judge/node_verdicts.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "egt/core/json_access.hpp"
#include "egt/core/record_text.hpp"
#include "egt/core/status.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "judge/action.hpp"
#include "judge/device_use.hpp"

namespace egt {
namespace {

constexpr std::size_t max_reasons_listed = 3;  // per node; the result has all

bool is_selftest(const Json& result) {
  return text_at(result, "command") == "selftest";
}

struct Node {
  std::string hostname, slurm_name;  ///< `slurm_name` is empty outside a Slurm job
  bool failed = false, suspected = false;
  bool is_done = true;  ///< all its ranks did all planned work
  std::vector<std::string> reasons = {};
  Action action = Action::none;  ///< the most severe of its evidence
  int action_rank = -1;          ///< rank of that evidence; -1: unknown
};

/// A reason against ranks, with the action that it recommends if one node, or several, are to blame.
struct NodeReason {
  std::string text;
  Action certain, ambiguous;
};

/// Whether the rank completed the run, without a fault (--fail-fast), signal, error or lost peer.
bool came_to_the_end(const Json& rank) {
  const std::string reason = text_at(rank, "end_reason");
  return reason == "duration" || reason == "steps" || reason == "done";
}

int rank_of(const Json& entry) {
  return value_at<int>(entry, "rank").value_or(-1);
}

class Nodes {
 public:
  explicit Nodes(const Json& result) {
    is_selftest_ = is_selftest(result);
    is_injected_ = is_selftest_ || value_at<bool>(result, "injected").value_or(false);
    unfinished_ = text_at(result, "verdict") == "interrupted" ? Action::finish_run : Action::run_longer;
    for (const Json& rank : member(result, "ranks")) {
      Node& node = add(rank);
      node.is_done = node.is_done && came_to_the_end(rank);
    }
    // A rank on another node that was lost early left no record of its own.
    for (const Json& loss : member(result, "losses"))
      if (!id_of_.contains(rank_of(loss)) && !text_at(loss, "hostname").empty()) add(loss).is_done = false;
    for (const Json& entry : member(result, "results"))
      if (const auto of = id_of_.find(value_at<int>(entry, "rank").value_or(-1)); of != id_of_.end())
        if (!value_at<bool>(entry, "success").value_or(false)) nodes_[of->second].is_done = false;
  }

  /// Blames the nodes of ranks that share one suspicion. Several ranks on one node count as one suspect. If
  /// the ranks belong to no known node, no node can pass.
  void blame(const std::set<int>& ranks, const NodeReason& reason, bool is_certain = true) {
    const std::set<std::string> ids = nodes_of(ranks);
    (ids.empty() ? blames_nobody_ : blames_somebody_) = true;
    for (const std::string& id : ids) {
      Node& node = nodes_[id];
      (is_certain && ids.size() == 1 ? node.failed : node.suspected) = true;
      node.reasons.push_back(reason.text);
      const Action action = ids.size() == 1 ? reason.certain : reason.ambiguous;
      if (action <= node.action) continue;
      node.action = action;
      node.action_rank = ranks.size() == 1 ? *ranks.begin() : -1;
    }
  }

  std::set<std::string> nodes_of(const std::set<int>& ranks) const {
    std::set<std::string> ids;
    for (const int rank : ranks)
      if (const auto found = id_of_.find(rank); found != id_of_.end()) ids.insert(found->second);
    return ids;
  }
  std::size_t size() const { return order_.size(); }
  /// True if every reason why the run does not pass belongs to some known node.
  bool explain() const { return blames_somebody_ && !blames_nobody_; }

  Json list(const char* otherwise) const {
    Json list = Json::array();
    for (const std::string& id : order_) {
      const Node& node = nodes_.at(id);
      list.push_back({{"hostname", node.hostname},
                      {"slurm_node", node.slurm_name.empty() ? Json() : Json(node.slurm_name)},
                      {"verdict", verdict_of(node, otherwise)},
                      {"reasons", node.reasons},
                      {"action", action_of(node, verdict_of(node, otherwise))}});
    }
    return list;
  }

 private:
  Node& add(const Json& rank) {
    const Node node{.hostname = text_at(rank, "hostname"), .slurm_name = text_at(rank, "slurm_node")};
    // Containers on several nodes may share a hostname; Slurm's names are unique.
    const std::string id = node.slurm_name.empty() ? node.hostname : node.slurm_name;
    id_of_[rank_of(rank)] = id;
    if (nodes_.try_emplace(id, node).second) order_.push_back(id);
    return nodes_[id];
  }
  const char* verdict_of(const Node& node, const char* otherwise) const {
    if (!node.failed && !node.suspected) return node.is_done ? otherwise : "unknown";
    return is_injected_ ? "injected" : node.failed ? "fail" : "suspect";
  }

  /// Injected faults recommend nothing about the hardware.
  Json action_of(const Node& node, std::string_view verdict) const {
    if (verdict == "pass") return to_json(Action::none, -1);
    if (is_injected_) return none_since_injected(is_selftest_ ? Action::none : node.action, node.action_rank);
    return verdict == "unknown" ? to_json(unfinished_, -1) : to_json(node.action, node.action_rank);
  }

  std::map<int, std::string> id_of_;  ///< node of each rank
  std::map<std::string, Node> nodes_;
  std::vector<std::string> order_;
  Action unfinished_ = Action::run_longer;  ///< of a node whose ranks did not end
  bool is_injected_ = false, is_selftest_ = false, blames_somebody_ = false, blames_nobody_ = false;
};

/// If ranks of every node are lost, the nodes lost each other, and no single node is at fault.
void blame_losses(const Json& losses, Nodes& nodes) {
  std::set<int> lost;
  for (const Json& loss : losses) lost.insert(rank_of(loss));
  const bool is_mutual = nodes.nodes_of(lost).size() == nodes.size();
  for (const Json& loss : losses) {
    // The run directory may be on a file server, so a failed journal is no evidence against the node.
    const bool is_of_node = !text_at(loss, "phase").starts_with("journal:");
    nodes.blame(is_mutual ? lost : std::set{rank_of(loss)}, {loss_text(loss), action_of_loss, action_of_loss},
                is_of_node);
  }
}

/// Quotes text for a shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

bool is_address(const std::string& host) {
  in_addr address{};
  return host.find(':') != std::string::npos || ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

/// The name in Slurm's configuration: `SLURMD_NODENAME` of its ranks, else the hostname without its domain.
std::string slurm_name_of(const Json& node) {
  if (const std::string name = text_at(node, "slurm_node"); !name.empty()) return name;
  const std::string host = text_at(node, "hostname");
  return is_address(host) ? host : host.substr(0, host.find('.'));
}

/// Equal reasons are listed once, with their number.
std::string reasons_text(const Json& node) {
  std::vector<std::pair<std::string, std::size_t>> reasons;
  for (const Json& reason : member(node, "reasons")) {
    const std::string text = printable(reason.get<std::string>());
    const auto known =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& one) { return one.first == text; });
    known == reasons.end() ? void(reasons.emplace_back(text, 1)) : void(++known->second);
  }
  std::string list;
  for (std::size_t i = 0; i < reasons.size() && i < max_reasons_listed; ++i)
    list += fmt::format("{}{}{}", i > 0 ? "; " : "", reasons[i].first,
                        reasons[i].second > 1 ? fmt::format(" ({} times)", reasons[i].second) : "");
  return reasons.size() > max_reasons_listed
             ? fmt::format("{}; and {} more", list, reasons.size() - max_reasons_listed)
             : list;
}

/// "rank 1, step 20: ", omitting unknown values.
std::string moment_text(const Json& fault) {
  const auto step = value_at<std::int64_t>(fault, "step").value_or(-1);
  std::vector<std::string> known;
  if (rank_of(fault) >= 0) known.push_back(fmt::format("rank {}", rank_of(fault)));
  if (step >= 0) known.push_back(fmt::format("step {}", step));
  return known.empty() ? "" : fmt::format("{}: ", fmt::join(known, ", "));
}

}  // namespace

Json node_verdicts(const Json& result, bool has_all_evidence) {
  Nodes nodes(result);
  const std::set<int> idle = ranks_of_idle_devices(result);
  const std::string verdict = text_at(result, "verdict");
  if (verdict == "pass") return nodes.list("pass");  // includes selftest, where faults are expected
  if (!is_selftest(result))                          // selftest injects faults on every rank
    for (const Json& fault : member(result, "faults"))
      nodes.blame(accused_ranks(fault, idle), {moment_text(fault) + text_at(fault, "kind") + " fault",
                                               action_of_fault(fault, true), action_of_fault(fault, false)});
  for (const Json& repeat : member(result, "fault_repeats"))  // repeats without a rank list no suspects
    if (rank_of(repeat) >= 0 && !is_selftest(result))
      nodes.blame(accused_ranks(repeat, idle),
                  {fmt::format("rank {}: {}", rank_of(repeat),
                               counted(value_at<std::uint64_t>(repeat, "count").value_or(0),
                                       "more " + text_at(repeat, "kind") + " fault")),
                   action_of_fault(repeat, true), action_of_fault(repeat, false)});
  blame_losses(member(result, "losses"), nodes);
  for (const Json& finding : member(result, "findings"))
    nodes.blame({rank_of(finding)},
                {finding_text(finding), action_of_finding(finding), action_of_finding(finding)});
  for (const Json& rank : member(result, "ranks"))
    if (const Json& error = member(rank, "error");
        !error.is_null() && text_at(error, "code") != to_string(StatusCode::aborted))
      nodes.blame(
          {rank_of(rank)},
          {fmt::format("rank {}: {}", rank_of(rank), text_at(error, "what")), action_of_loss, action_of_loss},
          false);
  const bool was_done = has_all_evidence && verdict != "incomplete" && verdict != "interrupted";
  return nodes.list(was_done && nodes.explain() ? "pass" : "unknown");
}

std::string node_list_text(const Json& nodes) {
  std::string text, drains;
  for (const Json& node : nodes) {
    const std::string host = printable(text_at(node, "hostname")), verdict = text_at(node, "verdict"),
                      reasons = reasons_text(node);
    const std::string action = text_at(member(node, "action"), "name");
    text += fmt::format("{} {}{}{}{}\n", verdict, host, reasons.empty() ? "" : " ", reasons,
                        action.empty() || action == "none"
                            ? ""
                            : fmt::format("{} action: {}", reasons.empty() ? "" : ";", action));
    const std::string name = printable(slurm_name_of(node));
    if (verdict == "fail" && !name.empty())
      drains += fmt::format("scontrol update NodeName={} State=DRAIN Reason={}\n", quoted(name),
                            quoted("extreme_gpu_trainer: " + reasons));
    if (verdict == "fail" && text_at(node, "slurm_node").empty() && !is_address(host) && !host.empty())
      drains += fmt::format(
          "kubectl cordon \"$(kubectl get pod {0} -o jsonpath={{.spec.nodeName}} 2>/dev/null || echo "
          "{0})\"\n",
          quoted(host));
  }
  return text + drains;
}

}  // namespace egt
