#include "report/journal/journal_parts.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "report/journal/journal.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "journal.rank", suffix = ".jsonl";
constexpr int max_doublings = 40;  ///< of the interval between records: longer than any run
constexpr std::size_t read_bytes = 1 << 18;
constexpr std::size_t longest_line = 16 << 20;  ///< longer lines are no records, and are cut

/// Empty if it is not a journal file.
std::optional<JournalPart> parse_name(std::string_view name) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  JournalPart part;
  if (!take_number(name, part.rank) || part.rank < 0) return std::nullopt;
  part.is_open = name.empty();
  if (part.is_open) return part;
  const bool is_range = take_char(name, '.') && take_number(name, part.first) && take_char(name, '-') &&
                        take_number(name, part.last) && name.empty();
  return is_range && part.first > 0 && part.first <= part.last ? std::optional(part) : std::nullopt;
}

/// Sorted by rank. Among parts with the same start, the longest comes first; the open file comes last.
bool comes_before(const JournalPart& a, const JournalPart& b) {
  return std::tuple(a.rank, a.is_open, a.first, ~a.last) < std::tuple(b.rank, b.is_open, b.first, ~b.last);
}

bool holds(const JournalPart& range, const JournalPart& part) {
  return range.rank == part.rank && !range.is_open && !part.is_open && range.first <= part.first &&
         part.last <= range.last;
}

/// Whether a long history may omit the record.
bool is_thinned(const JournalLine& line) {
  return line.is_record && (line.record.kind == RecordKind::progress ||
                            line.record.kind == RecordKind::epoch || line.record.kind == RecordKind::notice);
}

/// Selects the records to keep: omittable records of one kind are kept `distance` seconds apart. Must be
/// called for all records in order.
class Thinning {
 public:
  explicit Thinning(double distance) : distance_(distance) {}
  bool keeps(const JournalLine& line) {
    if (!is_thinned(line)) return true;
    const double time = line.record.time;
    const auto [last, is_first] = kept_.try_emplace(line.record.kind, time);
    // If the clock was set back, a new interval starts.
    if (!is_first && time >= last->second && time < last->second + distance_) return false;
    last->second = time;
    return true;
  }

 private:
  double distance_;
  std::map<RecordKind, double> kept_;
};

/// The records that remain with the min interval of 2^k seconds that satisfies the size limit.
Result<std::string> thinned_text(const std::vector<JournalPart>& parts, std::int64_t bytes) {
  std::vector<Thinning> trials;
  for (int doublings = 0; doublings <= max_doublings; ++doublings)
    trials.emplace_back(std::ldexp(1.0, doublings));
  std::vector<std::int64_t> lengths(trials.size());
  for (const JournalPart& part : parts)
    EGT_TRY(for_each_line(part.path, [&](const JournalLine& line) {
      for (std::size_t i = 0; i < trials.size(); ++i)
        if (trials[i].keeps(line)) lengths[i] += static_cast<std::int64_t>(line.text.size() + 1);
      return Status();
    }));
  const auto fitting =
      std::find_if(lengths.begin(), lengths.end() - 1, [&](std::int64_t length) { return length <= bytes; });
  Thinning thinning(std::ldexp(1.0, static_cast<int>(fitting - lengths.begin())));
  std::string text;
  for (const JournalPart& part : parts)
    EGT_TRY(for_each_line(part.path, [&](const JournalLine& line) {
      if (thinning.keeps(line)) text += line.text + '\n';
      return Status();
    }));
  return text;
}

std::int64_t bytes_of(const std::vector<JournalPart>& parts) {
  std::int64_t bytes = 0;
  std::error_code ignored;
  for (const JournalPart& part : parts) bytes += static_cast<std::int64_t>(fs::file_size(part.path, ignored));
  return bytes;
}

}  // namespace

std::string journal_part_name(int rank, std::uint64_t first, std::uint64_t last) {
  return fmt::format("{}{}.{}-{}{}", prefix, rank, first, last, suffix);
}

Result<std::vector<JournalPart>> find_journal_parts(const std::string& directory,
                                                    std::vector<JournalPart>* replaced) {
  std::vector<JournalPart> all, parts;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (auto part = parse_name(entry->path().filename().string())) {
      part->path = entry->path();
      all.push_back(std::move(*part));
    }
  if (error)
    return Status(StatusCode::unavailable, fmt::format("{}: cannot be read: {}", directory, error.message()),
                  error.value());
  std::sort(all.begin(), all.end(), comes_before);
  for (JournalPart& part : all) {
    const bool is_replaced = !parts.empty() && holds(parts.back(), part);
    if (!is_replaced)
      parts.push_back(std::move(part));
    else if (replaced)
      replaced->push_back(std::move(part));
  }
  return parts;
}

namespace {

/// Passes one line to `take`, unless it is empty.
Status take_line(JournalLine& line, const std::function<Status(JournalLine&)>& take) {
  if (line.text.empty()) return {};
  line.record = {};
  line.is_record = false;
  line.number = 0;
  if (line.text.size() < longest_line) {
    const Json json = Json::parse(line.text, nullptr, false);
    line.is_record = !json.is_discarded() && from_json(json, line.record);
    if (line.is_record) line.number = value_at<std::uint64_t>(json, "number").value_or(0);
  }
  const Status taken = take(line);
  line.text.clear();
  return taken;
}

}  // namespace

Status for_each_line(const std::string& path, const std::function<Status(JournalLine&)>& take) {
  std::error_code error;
  // Opening a pipe could block forever, and a device is endless.
  if (const auto kind = fs::status(path, error).type(); kind != fs::file_type::regular)
    return {StatusCode::unavailable,
            fmt::format("{}: {}", path,
                        kind == fs::file_type::not_found ? "cannot be read" : "is no regular file")};
  std::ifstream file(path, std::ios::binary);
  if (!file) return {StatusCode::unavailable, fmt::format("{}: cannot be read", path)};
  JournalLine line;
  std::string chunk(read_bytes, '\0');
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const std::string_view got(chunk.data(), static_cast<std::size_t>(file.gcount()));
    for (std::size_t begin = 0; begin < got.size();) {
      const std::size_t end = std::min(got.find('\n', begin), got.size());
      line.text += got.substr(begin, std::min(end - begin, longest_line - line.text.size()));
      begin = end + 1;
      if (end == got.size()) break;
      line.has_newline = true;
      EGT_TRY(take_line(line, take));
    }
  }
  if (file.bad()) return {StatusCode::io_error, fmt::format("{}: cannot be read to its end", path)};
  line.has_newline = false;
  return take_line(line, take);
}

Status thin_history(const std::string& directory, int rank, std::int64_t bytes) {
  std::vector<JournalPart> replaced;
  EGT_TRY_ASSIGN(std::vector<JournalPart> parts, find_journal_parts(directory, &replaced));
  std::erase_if(parts, [&](const JournalPart& part) { return part.rank != rank || part.is_open; });
  std::erase_if(replaced, [&](const JournalPart& part) { return part.rank != rank; });
  if (parts.size() > 1 && bytes_of(parts) > bytes) {
    EGT_TRY_ASSIGN(const std::string text, thinned_text(parts, bytes));
    EGT_TRY(write_atomically(
        directory + "/" + journal_part_name(rank, parts.front().first, parts.back().last), text));
    replaced.insert(replaced.end(), parts.begin(), parts.end());
  }
  for (const JournalPart& part : replaced) ::unlink(part.path.c_str());
  return {};
}

}  // namespace egt
