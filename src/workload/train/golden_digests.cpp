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
#include "egt/core/text.hpp"

namespace egt {
namespace {

constexpr std::uint64_t schema = 1;
/// A golden file has a few KB; a much larger file is something else.
constexpr std::size_t largest_file = 64 << 20;

Status damaged(const std::string& path, const std::string& what) {
  return {StatusCode::invalid_argument,
          fmt::format("{}: not a usable golden file: {}; name another file or remove it", path, what)};
}

/// An invalid UTF-8 name (from a driver) must not end the run.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string checksum_of(const Json& entries) {
  return to_string(digest_of(text_of(entries, -1)));
}

}  // namespace

Result<Golden> Golden::parse(const std::string& text, const std::string& path) {
  std::string where;
  try {
    const Json json = Json::parse(text);
    if (const Json& found = json.at("schema"); found != schema)
      return damaged(path, fmt::format("schema {} is not known, only {}", found.dump(), schema));
    const Json& entries = json.at("golden");
    Golden golden;
    for (const Json& entry : entries.get<std::vector<Json>>()) {
      where = fmt::format("entry {}: ", golden.known_.size());
      const auto text_of = [&](const char* name) { return entry.at(name).get<std::string>(); };
      const auto [known, is_new] =
          golden.known_.try_emplace({text_of("device_model"), text_of("work"), text_of("precision")});
      if (!is_new) return damaged(path, where + "repeats another's device_model, work and precision");
      for (const auto& [question, digits] : entry.at("digests").get<std::map<std::string, std::string>>()) {
        const auto digest = parse_digest(digits);
        if (!digest)
          return damaged(path, fmt::format("{}digest of '{}' is not 32 hexadecimal digits: {}", where,
                                           question, printable(digits)));
        known->second.emplace(question, *digest);
      }
      // An empty entry could never fail.
      if (known->second.empty()) return damaged(path, where + "it has no digests");
    }
    if (golden.empty()) return damaged(path, "its list 'golden' is empty");
    // A changed digit must not look like a GPU that computes wrong. Earlier versions wrote no checksum.
    if (const Json& sum = member(json, "checksum"); !sum.is_null() && sum != checksum_of(entries))
      return damaged(path, "its checksum is not that of its list 'golden'");
    return golden;
  } catch (const Json::exception& error) {
    return damaged(path, where + printable(error.what()));
  }
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
