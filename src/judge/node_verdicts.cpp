#include "judge/node_verdicts.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <vector>

#include "egt/core/json_access.hpp"
#include "egt/core/printable.hpp"
#include "egt/core/record_text.hpp"

namespace egt {
namespace {

constexpr std::size_t most_reasons_listed = 3;  // of a node: the result has all

struct Node {
  bool failed = false, suspected = false;
  std::vector<std::string> reasons;
};

class Nodes {
 public:
  explicit Nodes(const Json& result) {
    for (const Json& rank : member(result, "ranks")) {
      const std::string host = text_at(rank, "hostname");
      host_of_[value_at<int>(rank, "rank").value_or(-1)] = host;
      if (nodes_.try_emplace(host).second) order_.push_back(host);
    }
  }

  /// All of them are suspects of the same; of one host they make no difference. Of no host: then nobody can
  /// be said to have passed.
  void blame(const std::set<int>& ranks, const std::string& reason) {
    const std::set<std::string> hosts = hosts_of(ranks);
    (hosts.empty() ? blames_nobody_ : blames_somebody_) = true;
    for (const std::string& host : hosts) {
      Node& node = nodes_[host];
      (hosts.size() == 1 ? node.failed : node.suspected) = true;
      node.reasons.push_back(reason);
    }
  }

  std::set<std::string> hosts_of(const std::set<int>& ranks) const {
    std::set<std::string> hosts;
    for (const int rank : ranks)
      if (const auto found = host_of_.find(rank); found != host_of_.end()) hosts.insert(found->second);
    return hosts;
  }
  std::size_t size() const { return order_.size(); }
  /// What speaks against the run is somebody's, all of it.
  bool explain() const { return blames_somebody_ && !blames_nobody_; }

  Json list(const char* otherwise) const {
    Json list = Json::array();
    for (const std::string& host : order_) {
      const Node& node = nodes_.at(host);
      list.push_back({{"hostname", host},
                      {"verdict", node.failed      ? "fail"
                                  : node.suspected ? "suspect"
                                                   : otherwise},
                      {"reasons", node.reasons}});
    }
    return list;
  }

 private:
  std::map<int, std::string> host_of_;
  std::map<std::string, Node> nodes_;
  std::vector<std::string> order_;
  bool blames_somebody_ = false, blames_nobody_ = false;
};

int rank_of(const Json& entry) {
  return value_at<int>(entry, "rank").value_or(-1);
}

std::set<int> suspects_of(const Json& fault) {
  std::set<int> ranks;
  for (const Json& suspect : member(fault, "suspects"))
    if (suspect.is_number_integer()) ranks.insert(suspect.get<int>());
  if (ranks.empty()) ranks.insert(rank_of(fault));
  return ranks;
}

/// Where ranks of every host are lost, hosts lost each other, and none of them can be said to be at fault.
void blame_losses(const Json& losses, Nodes& nodes) {
  std::set<int> lost;
  for (const Json& loss : losses) lost.insert(rank_of(loss));
  const bool is_mutual = nodes.hosts_of(lost).size() == nodes.size();
  for (const Json& loss : losses) nodes.blame(is_mutual ? lost : std::set{rank_of(loss)}, loss_text(loss));
}

/// In single quotes of a shell.
std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string reasons_text(const Json& node) {
  std::string text;
  const Json& reasons = member(node, "reasons");
  for (std::size_t i = 0; i < reasons.size() && i < most_reasons_listed; ++i)
    text += (i > 0 ? "; " : "") + printable(reasons[i].get<std::string>());
  return reasons.size() > most_reasons_listed
             ? fmt::format("{}; and {} more", text, reasons.size() - most_reasons_listed)
             : text;
}

}  // namespace

Json node_verdicts(const Json& result) {
  Nodes nodes(result);
  const std::string verdict = text_at(result, "verdict");
  if (verdict == "pass") return nodes.list("pass");  // of selftest, too, whose faults were to be found
  if (text_at(result, "command") != "selftest")      // which puts faults in on every rank
    for (const Json& fault : member(result, "faults"))
      nodes.blame(suspects_of(fault),
                  fmt::format("rank {}, step {}: {} fault", rank_of(fault),
                              value_at<std::int64_t>(fault, "step").value_or(-1), text_at(fault, "kind")));
  blame_losses(member(result, "losses"), nodes);
  for (const Json& finding : member(result, "findings"))
    nodes.blame({rank_of(finding)}, finding_text(finding));
  for (const Json& rank : member(result, "ranks"))
    if (const std::string error = text_at(rank, "error"); !error.empty())
      nodes.blame({rank_of(rank)}, fmt::format("rank {}: {}", rank_of(rank), error));
  const bool was_done = verdict != "incomplete" && verdict != "interrupted";
  return nodes.list(was_done && nodes.explain() ? "pass" : "unknown");
}

std::string node_list_text(const Json& nodes) {
  std::string text, drains;
  for (const Json& node : nodes) {
    const std::string host = printable(text_at(node, "hostname")), verdict = text_at(node, "verdict"),
                      reasons = reasons_text(node);
    text += fmt::format("{} {}{}{}\n", verdict, host, reasons.empty() ? "" : " ", reasons);
    if (verdict == "fail")
      drains +=
          fmt::format("scontrol update NodeName={} State=DRAIN Reason={}\n",
                      quoted(host.substr(0, host.find('.'))), quoted("extreme_gpu_trainer: " + reasons));
  }
  return text + drains;
}

}  // namespace egt
