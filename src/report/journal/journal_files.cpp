#include "report/journal/journal_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "journal.rank", suffix = ".jsonl";
constexpr std::size_t read_bytes = 1 << 18;
constexpr std::size_t longest_line = 16 << 20;  ///< longer lines are no records, and are cut

/// Whether it is the name of a journal; then `rank` is its rank.
bool parse_name(std::string_view name, int& rank) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
  name.remove_prefix(prefix.size());
  name.remove_suffix(suffix.size());
  return take_number(name, rank) && rank >= 0 && name.empty();
}

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

Result<std::vector<JournalFile>> find_journals(const std::string& directory) {
  std::vector<JournalFile> journals;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (JournalFile file{0, entry->path()}; parse_name(entry->path().filename().string(), file.rank))
      journals.push_back(std::move(file));
  if (error)
    return Status(StatusCode::unavailable, fmt::format("{}: cannot be read: {}", directory, error.message()),
                  error.value());
  std::sort(journals.begin(), journals.end(),
            [](const JournalFile& a, const JournalFile& b) { return a.rank < b.rank; });
  return journals;
}

Status for_each_line(const std::string& path, const std::function<Status(JournalLine&)>& take,
                     std::int64_t* from) {
  std::error_code error;
  // Opening a pipe could block forever, and a device is endless.
  if (const auto kind = fs::status(path, error).type(); kind != fs::file_type::regular)
    return {StatusCode::unavailable,
            fmt::format("{}: {}", path,
                        kind == fs::file_type::not_found ? "cannot be read" : "is no regular file")};
  std::ifstream file(path, std::ios::binary);
  if (!file) return {StatusCode::unavailable, fmt::format("{}: cannot be read", path)};
  std::int64_t at = from ? *from : 0;  // of the chunk
  file.seekg(at);
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
      if (from) *from = at + static_cast<std::int64_t>(begin);
    }
    at += static_cast<std::int64_t>(got.size());
  }
  if (file.bad()) return {StatusCode::io_error, fmt::format("{}: cannot be read to its end", path)};
  if (from) return {};
  line.has_newline = false;
  return take_line(line, take);
}

}  // namespace egt
