#include "report/console/summary.hpp"

#include <string_view>
#include <vector>

#include "egt/core/json_access.hpp"
#include "report/tables/bench_text.hpp"
#include "report/tables/links_text.hpp"
#include "report/tables/verify_text.hpp"

namespace egt {
namespace {

struct Summary {
  std::string_view command;
  std::string (*text)(const Json& result);
};

/// Every command that has one.
const std::vector<Summary>& summaries() {
  static const std::vector<Summary> all = {
      {"bench", bench_text}, {"links", links_text}, {"verify", verify_text}};
  return all;
}

}  // namespace

std::string summary_text(const Json& result) {
  for (const Summary& summary : summaries())
    if (text_at(result, "command") == summary.command) return summary.text(result);
  return {};
}

}  // namespace egt
