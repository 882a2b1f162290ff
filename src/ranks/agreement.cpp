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

Status agree(Control& control, const Status& own) {
  EGT_TRY_ASSIGN(const auto statuses, control.gather(encode(own)));
  std::string first;
  for (std::size_t rank = 0; rank < statuses.size() && first.empty(); ++rank) {
    if (statuses[rank].empty()) continue;
    const Status status = decode(statuses[rank]);
    first =
        encode(rank == 0 ? status : Status(status.code(), fmt::format("rank {}: {}", rank, status.what())));
  }
  EGT_TRY_ASSIGN(const std::string decision, control.broadcast(first));
  return decode(decision);
}

Result<std::vector<std::string>> gather_for_all(Control& control, const std::string& own) {
  EGT_TRY_ASSIGN(auto texts, control.gather(own));
  std::string all;  // each behind its length
  for (const std::string& text : texts) all += fmt::format("{} {}", text.size(), text);
  EGT_TRY_ASSIGN(all, control.broadcast(all));
  texts.clear();
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t begin = all.find(' ', at) + 1;
    texts.push_back(all.substr(begin, std::strtoull(all.c_str() + at, nullptr, 10)));
    at = begin + texts.back().size();
  }
  return texts;
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
