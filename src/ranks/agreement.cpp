#include "egt/ranks/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "egt/core/text.hpp"

namespace egt {

namespace {

std::string encode(const Status& status) {
  return status.ok() ? std::string() : fmt::format("{} {}", static_cast<int>(status.code()), status.what());
}

/// Decodes a failure. The result is never ok, since ok is sent as an empty text.
Status decode(const std::string& text) {
  const std::size_t space = text.find(' ');
  const int code = std::atoi(text.substr(0, space).c_str());
  if (space == text.npos || code <= static_cast<int>(StatusCode::ok) ||
      code > static_cast<int>(StatusCode::internal))
    return {StatusCode::internal, "no status, but: " + printable(text)};
  return Status(static_cast<StatusCode>(code), text.substr(space + 1));
}

}  // namespace

Result<std::vector<std::string>> all_gather(Control& control, const std::string& text) {
  EGT_TRY_ASSIGN(std::vector<std::string> texts, control.gather(text));
  // Rank 0 sends all texts as one: for each text its length, a colon, and the text.
  std::string joined;
  for (const std::string& one : texts) joined += fmt::format("{}:{}", one.size(), one);
  EGT_TRY_ASSIGN(joined, control.broadcast(joined));
  texts.clear();
  for (std::size_t at = 0; at < joined.size();) {
    const std::size_t begin = joined.find(':', at) + 1;
    if (begin == 0) return Status(StatusCode::internal, "the texts of all ranks changed in transit");
    texts.push_back(joined.substr(begin, std::strtoull(joined.c_str() + at, nullptr, 10)));
    at = begin + texts.back().size();
  }
  if (std::ssize(texts) != control.place().size)
    return Status(StatusCode::internal, "the texts of all ranks did not reach rank 0");
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

/// All ranks leave a barrier after the last one entered it. So their leave times differ by at most the
/// longest time that any rank spent in it.
Result<AgreedMoment> agree_on_moment(Control& control) {
  constexpr std::size_t rounds = 32;
  std::vector<Clock::time_point> left;
  std::string stays;
  for (std::size_t round = 0; round < rounds; ++round) {
    const Clock::time_point came = Clock::now();
    EGT_TRY(control.barrier());
    left.push_back(Clock::now());
    stays += fmt::format("{:.9f} ", std::chrono::duration<double>(left.back() - came).count());
  }
  EGT_TRY_ASSIGN(const auto texts, all_gather(control, stays));
  std::vector<double> longest(rounds, 0);
  for (const std::string& text : texts) {
    const char* at = text.c_str();
    for (double& stay : longest) {
      char* end = nullptr;
      stay = std::max(stay, std::strtod(at, &end));
      at = end;
    }
  }
  const auto best = std::min_element(longest.begin(), longest.end());
  return AgreedMoment{.moment = left[static_cast<std::size_t>(best - longest.begin())],
                      .error_seconds = *best};
}

}  // namespace egt
