#include "egt/ranks/agreement.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace egt {

namespace {

std::string encode(const Status& status) {
  return status.ok() ? std::string() : fmt::format("{} {}", static_cast<int>(status.code()), status.what());
}

Status decode(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t space = text.find(' ');
  return Status(static_cast<StatusCode>(std::atoi(text.substr(0, space).c_str())), text.substr(space + 1));
}

}  // namespace

Result<std::vector<std::string>> all_gather(Control& control, const std::string& text) {
  EGT_TRY_ASSIGN(std::vector<std::string> texts, control.gather(text));
  // From rank 0 to all as one text: of each its length, a colon, and itself.
  std::string joined;
  for (const std::string& one : texts) joined += fmt::format("{}:{}", one.size(), one);
  EGT_TRY_ASSIGN(joined, control.broadcast(joined));
  texts.clear();
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t begin = joined.find(':', at) + 1;
    texts.push_back(joined.substr(begin, std::strtoull(joined.c_str() + at, nullptr, 10)));
    at = begin + texts.back().size();
  }
  return texts;
}

Status agree(Control& control, const Status& own) {
  EGT_TRY_ASSIGN(const auto statuses, all_gather(control, encode(own)));
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    if (statuses[rank].empty()) continue;
    const Status status = decode(statuses[rank]);
    return rank == 0 ? status : Status(status.code(), fmt::format("rank {}: {}", rank, status.what()));
  }
  return {};
}

Status agree_on_text(Control& control, const std::string& text, const std::string& what) {
  EGT_TRY_ASSIGN(const std::string first, control.broadcast(text));
  return agree(control,
               text == first
                   ? Status()
                   : Status(StatusCode::invalid_argument,
                            fmt::format("{} differ from those of rank 0: give all ranks the same", what)));
}

}  // namespace egt
