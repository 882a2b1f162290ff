#include "session/journal_gathering.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <utility>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/wait.hpp"
#include "egt/ranks/agreement.hpp"
#include "report/journal/journal.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = 1 << 20;

bool are_apart(const std::vector<std::string>& directories) {
  return std::any_of(directories.begin(), directories.end(),
                     [&](const std::string& one) { return one != directories.front(); });
}

/// Encodes an answer: '+' and the content, or '-' and the error text.
std::string answer_text(const Result<std::string>& answer) {
  return answer.ok() ? "+" + answer.value() : "-" + answer.status().what();
}

Result<std::string> read_chunk(const std::string& path, std::int64_t offset) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string chunk(chunk_bytes, '\0');
  const ssize_t got = file.valid() ? ::pread(file.get(), chunk.data(), chunk.size(), offset) : -1;
  if (got < 0) return file_error(path, "cannot be read", errno);
  chunk.resize(static_cast<std::size_t>(got));
  return chunk;
}

/// Writes a transferred journal, unless an existing one has other content. No fsync, since the original
/// stays.
Status keep_journal(const std::string& path, const std::string& text) {
  std::error_code error;
  if (fs::exists(path, error)) {
    const auto old = read_regular_file(path, std::numeric_limits<std::size_t>::max());
    if (!old.ok()) return {old.status().code(), fmt::format("{}: {}", path, old.status().what())};
    if (!text.starts_with(old.value()) && !old.value().starts_with(text))
      return {StatusCode::unavailable, path + ": is there already, with other content"};
    if (old.value().size() >= text.size()) return {};
  }
  return write_atomically(path, text, Durability::system);
}

/// Rank 0's side of the transfer.
class Gathering {
 public:
  explicit Gathering(const GatheringSetup& setup) : setup_(setup) {}
  Status bring(int rank);
  /// Ends the requests and receives late answers, so that their sends complete.
  Status end();

 private:
  double seconds_left() const { return setup_.total_seconds() - seconds_since(begun_); }
  Result<std::string> ask(int rank, std::size_t offset);
  Result<bool> take(const std::string& request, std::string& answer);

  const GatheringSetup& setup_;
  const Clock::time_point begun_ = Clock::now();
  std::set<std::string> unanswered_;  ///< requests without an answer so far
};

/// Returns whether the answer to this request has arrived. Late answers to earlier requests are dropped.
Result<bool> Gathering::take(const std::string& request, std::string& answer) {
  for (;;) {
    EGT_TRY_ASSIGN(const auto text, setup_.control.receive());
    if (!text) return false;
    const std::string head = text->substr(0, text->find('\n'));
    unanswered_.erase(head);
    if (head != request) continue;
    answer = text->substr(head.size() + 1);
    return true;
  }
}

Result<std::string> Gathering::ask(int rank, std::size_t offset) {
  const std::string request = fmt::format("{} {}", rank, offset);
  std::string answer;
  const auto answered = [&]() -> Result<bool> {
    EGT_TRY_ASSIGN(const bool came, take(request, answer));
    if (came || seconds_left() > 0) return came;
    return Status(StatusCode::timeout, "there was no time left for it");
  };
  EGT_TRY(answered().status());
  setup_.begin_request();
  EGT_TRY(setup_.control.broadcast(request).status());
  unanswered_.insert(request);
  EGT_TRY(wait_until(answered,
                     {.seconds = setup_.answer_seconds, .what = "the sending of a part of the journal"}));
  if (answer.starts_with('+')) return answer.substr(1);
  return Status(StatusCode::io_error, answer.substr(1));
}

Status Gathering::bring(int rank) {
  std::string chunk, journal;
  do {
    EGT_TRY_ASSIGN(chunk, ask(rank, journal.size()));
    journal += chunk;
  } while (chunk.size() == chunk_bytes);
  return keep_journal(setup_.directory + "/" + journal_name(rank), journal);
}

Status Gathering::end() {
  EGT_TRY(setup_.control.broadcast("").status());
  std::string none;
  const auto all_answered = [&]() -> Result<bool> {
    EGT_TRY(take("", none).status());
    return unanswered_.empty();
  };
  return wait_until(all_answered, {.seconds = std::min(setup_.answer_seconds, setup_.total_seconds()),
                                   .what = "the sending of the journals"});
}

}  // namespace

Result<std::vector<std::string>> find_run_directories(Control& control, const std::string& directory) {
  const bool is_root = control.place().rank == 0;
  std::random_device random;
  const std::string name = fmt::format(".rank0-{:08x}{:08x}", random(), random());
  const std::string mark = directory + "/" + name;
  Status made;
  if (is_root && !Descriptor(::open(mark.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)).valid())
    made = file_error(mark, "cannot be made", errno);
  Result<std::vector<std::string>> found = [&]() -> Result<std::vector<std::string>> {
    EGT_TRY(agree(control, made));
    EGT_TRY_ASSIGN(const std::string asked, control.broadcast(name));
    const bool is_here = is_root || ::access((directory + "/" + asked).c_str(), F_OK) == 0;
    std::error_code error;
    return all_gather(control, fmt::format("{}{}:{}", is_here ? "+" : "-", control.place().hostname,
                                           fs::absolute(directory, error).string()));
  }();
  if (is_root) ::unlink(mark.c_str());
  EGT_TRY(found.status());
  std::vector<std::string>& places = found.value();
  for (std::string& place : places) {
    const bool is_here = place.starts_with('+');
    place.erase(0, 1);
    if (is_here)
      place = places.front();
    else if (place == places.front())
      place += " of another machine of that name";
  }
  return found;
}

std::vector<std::string> report_journals_elsewhere(const std::vector<std::string>& directories, int rank,
                                                   const std::string& why, const std::vector<int>& ranks) {
  std::map<std::string, std::vector<int>> by_directory;
  for (int one = 0; one < std::ssize(directories); ++one)
    if (ranks.empty() || std::find(ranks.begin(), ranks.end(), one) != ranks.end())
      by_directory[directories[static_cast<std::size_t>(one)]].push_back(one);
  by_directory.erase(directories[static_cast<std::size_t>(rank)]);
  std::vector<std::string> lines;
  for (const auto& [place, those] : by_directory)
    lines.push_back(fmt::format("the journal{} {} {} in {} and not here: {}",
                                those.size() == 1 ? " of rank" : "s of ranks", fmt::join(those, ", "),
                                those.size() == 1 ? "is" : "are", place, why));
  return lines;
}

std::vector<std::string> gather_journals(const GatheringSetup& setup) {
  if (!are_apart(setup.directories)) return {};
  Gathering gathering(setup);
  std::map<std::string, std::vector<int>> failed;  // ranks by error text
  for (int rank = 0; rank < setup.control.place().size; ++rank) {
    if (setup.directories[static_cast<std::size_t>(rank)] == setup.directories.front()) continue;
    Status brought = gathering.bring(rank);
    // Retry once: bytes may have been corrupted on the way.
    if (!brought.ok() && brought.code() != StatusCode::timeout) brought = gathering.bring(rank);
    if (!brought.ok()) failed[brought.what()].push_back(rank);
  }
  static_cast<void>(gathering.end());
  std::vector<std::string> lines;
  for (const auto& [why, ranks] : failed)
    for (std::string& line : report_journals_elsewhere(setup.directories, 0, why, ranks))
      lines.push_back(std::move(line));
  return lines;
}

Status offer_journals(const GatheringSetup& setup) {
  if (!are_apart(setup.directories)) return {};
  const int own = setup.control.place().rank;
  for (;;) {
    EGT_TRY_ASSIGN(const std::string request, setup.control.broadcast(""));
    setup.begin_request();
    if (request.empty()) return {};
    std::istringstream words(request);
    int rank = 0;
    std::int64_t offset = 0;
    words >> rank >> offset;
    if (rank != own) continue;
    const std::string answer = answer_text(read_chunk(setup.directory + "/" + journal_name(own), offset));
    EGT_TRY(setup.control.send_to_root(request + "\n" + answer));
  }
}

}  // namespace egt
