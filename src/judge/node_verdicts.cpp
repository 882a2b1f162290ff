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

  /// All of them are suspects of the same; of one host they make no difference.
  void blame(const std::set<int>& ranks, const std::string& reason) {
    std::set<std::string> hosts;
    for (const int rank : ranks)
      if (const auto found = host_of_.find(rank); found != host_of_.end()) hosts.insert(found->second);
    for (const std::string& host : hosts) {
      Node& node = nodes_[host];
      (hosts.size() == 1 ? node.failed : node.suspected) = true;
      node.reasons.push_back(reason);
    }
  }

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
};

std::set<int> suspects_of(const Json& fault) {
  std::set<int> ranks;
  for (const Json& suspect : member(fault, "suspects"))
    if (suspect.is_number_integer()) ranks.insert(suspect.get<int>());
  if (ranks.empty()) ranks.insert(value_at<int>(fault, "rank").value_or(-1));
  return ranks;
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
  for (const Json& fault : member(result, "faults"))
    nodes.blame(suspects_of(fault),
                fmt::format("rank {}, step {}: {} fault", value_at<int>(fault, "rank").value_or(-1),
                            value_at<std::int64_t>(fault, "step").value_or(-1), text_at(fault, "kind")));
  for (const Json& loss : member(result, "losses"))
    nodes.blame({value_at<int>(loss, "rank").value_or(-1)}, loss_text(loss));
  for (const Json& finding : member(result, "findings"))
    nodes.blame({value_at<int>(finding, "rank").value_or(-1)}, finding_text(finding));
  for (const Json& rank : member(result, "ranks"))
    if (const std::string error = text_at(rank, "error"); !error.empty()) {
      const int number = value_at<int>(rank, "rank").value_or(-1);
      nodes.blame({number}, fmt::format("rank {}: {}", number, error));
    }
  return nodes.list(verdict == "incomplete" || verdict == "interrupted" ? "unknown" : "pass");
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
