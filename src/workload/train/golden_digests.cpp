#include "workload/train/golden_digests.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr std::uint64_t schema = 1;
/// A golden file has a few KB; a much larger file is something else.
constexpr std::size_t largest_file = 64 << 20;

Status damaged(const std::string& path, const std::string& what) {
  return {StatusCode::invalid_argument,
          fmt::format("{}: not a usable golden file: {}; name another file or remove it", path, what)};
}

/// Position of the byte at `offset`: "line 3, column 7".
std::string place_of(const std::string& text, std::size_t offset) {
  const std::string before = text.substr(0, offset);
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", 1 + std::count(before.begin(), before.end(), '\n'),
                     offset - line_start + 1);
}

Result<Json> parse_json(const std::string& text, const std::string& path) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::size_t offset = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const std::string what = offset == text.size() ? "it ends too early" : "no JSON";
    return damaged(path, fmt::format("{}: {}", place_of(text, offset), what));
  }
}

/// Digests of entry number `index`. Must not be empty, because an empty entry could never fail.
Result<Golden::Digests> digests_of(const Json& entry, std::size_t index, const std::string& path) {
  const Json& digests = member(entry, "digests");
  if (!digests.is_object() || digests.empty())
    return damaged(path, fmt::format("entry {} has no digests", index));
  Golden::Digests result;
  for (const auto& [question, digits] : digests.items()) {
    const auto digest = digits.is_string() ? parse_digest(digits.get<std::string>()) : std::nullopt;
    if (!digest)
      return damaged(path, fmt::format("entry {}: digest of '{}' is not 32 hexadecimal digits: {}", index,
                                       question, digits.dump()));
    result.emplace(question, *digest);
  }
  return result;
}

/// An invalid UTF-8 name (from a driver) must not end the run.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string checksum_of(const Json& entries) {
  return to_string(digest_of(text_of(entries, -1)));
}

Result<std::string> text_of_entry(const Json& entry, const char* name, std::size_t index,
                                  const std::string& path) {
  const auto value = value_at<std::string>(entry, name);
  if (!value) return damaged(path, fmt::format("entry {} has no text '{}'", index, name));
  return *value;
}

}  // namespace

Result<Golden> Golden::parse(const std::string& text, const std::string& path) {
  EGT_TRY_ASSIGN(const Json json, parse_json(text, path));
  const auto number = value_at<std::uint64_t>(json, "schema");
  if (!number) return damaged(path, "it has no number 'schema'");
  if (*number != schema)
    return damaged(path,
                   fmt::format("schema {} is not known, only {}", member(json, "schema").dump(), schema));
  const Json& entries = member(json, "golden");
  if (!entries.is_array()) return damaged(path, "it has no list 'golden'");
  if (entries.empty()) return damaged(path, "its list 'golden' is empty");
  Golden golden;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EGT_TRY_ASSIGN(const std::string device_model, text_of_entry(entries[i], "device_model", i, path));
    EGT_TRY_ASSIGN(const std::string work, text_of_entry(entries[i], "work", i, path));
    EGT_TRY_ASSIGN(const std::string precision, text_of_entry(entries[i], "precision", i, path));
    EGT_TRY_ASSIGN(const Digests digests, digests_of(entries[i], i, path));
    if (golden.find(device_model, work, precision))
      return damaged(path, fmt::format("entry {} repeats another's device_model, work and precision", i));
    golden.add(device_model, work, precision, digests);
  }
  // A changed digit must not look like a GPU that computes wrong. Earlier versions wrote no checksum.
  if (const Json& sum = member(json, "checksum"); !sum.is_null() && sum != checksum_of(entries))
    return damaged(path, "its checksum is not that of its list 'golden'");
  return golden;
}

std::string Golden::text() const {
  Json entries = Json::array();
  for (const auto& [key, digests] : known_) {
    Json digits = Json::object();
    for (const auto& [question, digest] : digests) digits[question] = to_string(digest);
    const auto& [device_model, work, precision] = key;
    entries.push_back(
        {{"device_model", device_model}, {"work", work}, {"precision", precision}, {"digests", digits}});
  }
  const Json json = {{"schema", schema}, {"checksum", checksum_of(entries)}, {"golden", entries}};
  return text_of(json, 2) + "\n";
}

const Golden::Digests* Golden::find(const std::string& device_model, const std::string& work,
                                    const std::string& precision) const {
  const auto found = known_.find({device_model, work, precision});
  return found == known_.end() ? nullptr : &found->second;
}

void Golden::add(const std::string& device_model, const std::string& work, const std::string& precision,
                 const Digests& digests) {
  if (digests.empty()) return;
  Digests& known = known_[{device_model, work, precision}];
  for (const auto& [question, digest] : digests) known.insert_or_assign(question, digest);
}

Result<std::optional<Answers>> Golden::answers(const std::string& device_model, const std::string& work,
                                               const std::string& precision,
                                               const std::vector<std::string>& questions,
                                               const std::string& path) const {
  const Digests* const known = find(device_model, work, precision);
  if (known == nullptr) return std::optional<Answers>();
  Answers answers;
  for (const std::string& question : questions) {
    const auto digest = known->find(question);
    if (digest == known->end())
      return damaged(path, fmt::format("it lacks the digest of '{}' in {}", question, precision));
    answers.push_back(digest->second);
  }
  return std::optional<Answers>(std::move(answers));
}

namespace {

/// Detects this at the start of a run instead of its end.
Status check_can_be_made(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (::access(parent.empty() ? "." : parent.c_str(), W_OK | X_OK) == 0) return {};
  return file_error(path, "golden file cannot be made", errno, StatusCode::unavailable);
}

}  // namespace

Result<std::optional<Golden>> read_golden(const std::string& path) {
  const Result<std::string> text = read_regular_file(path, largest_file);
  if (text.status().native() == ENOENT) {
    EGT_TRY(check_can_be_made(path));
    return std::optional<Golden>();
  }
  if (!text.ok())
    return Status(StatusCode::unavailable, fmt::format("{}: golden file {}", path, text.status().what()));
  EGT_TRY_ASSIGN(Golden golden, Golden::parse(text.value(), path));
  return std::optional<Golden>(std::move(golden));
}

Status write_golden(const std::string& path, const Golden& golden) {
  const Status written = write_atomically(path, golden.text());
  if (written.ok() || written.code() == StatusCode::no_space) return written;
  return {StatusCode::unavailable, written.what(), written.native()};
}

}  // namespace egt
