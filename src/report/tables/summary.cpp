#include "report/tables/summary.hpp"

#include "egt/core/json_access.hpp"

namespace egt {

std::string summary_text(const Json& result) {
  const std::string command = text_at(result, "command");
  if (command == "bench") return bench_text(result);
  if (command == "links") return links_text(result);
  if (command == "loadtest") return loadtest_text(result);
  return command == "verify" ? verify_text(result) : "";
}

}  // namespace egt
