#include "loadtest/images/image_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "egt/core/math/philox.hpp"
#include "egt/core/text.hpp"
#include "loadtest/images/image_file.hpp"

namespace egt {
namespace {

constexpr std::size_t max_entries = std::size_t{1} << 24;
constexpr std::uint64_t of_order = 16;  ///< purpose of the key

/// Lists the images below a folder, following links, except links to an enclosing folder.
class Listing {
 public:
  Listing(const std::string& folder, const std::stop_token& stop) : folder_(folder), stop_(stop) {}

  /// Lists subfolder `below`: "" or "cats/".
  Status add(const std::string& below) {
    const std::string path = folder_ + "/" + below;
    std::error_code error;
    const std::filesystem::path real = std::filesystem::canonical(path, error);
    if (std::find(above_.begin(), above_.end(), real) != above_.end()) return {};
    above_.push_back(real);
    std::filesystem::directory_iterator entry;
    if (!error) entry = std::filesystem::directory_iterator(path, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      if (stop_.stop_requested())
        return {StatusCode::stopped, "a stop was asked for while images were listed"};
      if (++entries_ > max_entries)
        return {StatusCode::unavailable,
                fmt::format("{} has more than {} entries", printable(folder_), max_entries)};
      const std::string name = entry->path().filename().string();
      std::error_code unknown;
      if (entry->is_directory(unknown))
        EGT_TRY(add(below + name + "/"));
      else if (is_image_name(name))
        files.push_back(below + name);
    }
    above_.pop_back();
    if (error) return file_error(printable(path), "cannot be listed", error.value(), StatusCode::unavailable);
    return {};
  }

  std::vector<std::string> files;

 private:
  const std::string& folder_;
  const std::stop_token& stop_;
  std::vector<std::filesystem::path> above_;
  std::size_t entries_ = 0;
};

/// Orders folder by folder: "a/z" comes before "a-b/a".
bool is_before(const std::string& a, const std::string& b) {
  const auto order = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [&](char c, char d) { return order(c) < order(d); });
}

/// FNV-1a.
std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 0x811C9DC5u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return hash;
}

bool is_in_class(const std::string& path) {
  return path.find('/') != std::string::npos;
}

}  // namespace

Result<std::unique_ptr<ImageFolder>> ImageFolder::open(const std::string& folder, std::uint64_t seed,
                                                       std::int64_t side, const std::stop_token& stop) {
  Listing listing(folder, stop);
  EGT_TRY(listing.add(""));
  if (listing.files.empty())
    return Status(StatusCode::unavailable,
                  fmt::format("{} has no image (.ppm, .png, .jpg, .jpeg)", printable(folder)));
  std::unique_ptr<ImageFolder> set(new ImageFolder(folder, seed, side));
  set->add_files(std::move(listing.files));
  std::vector<float> pixels(static_cast<std::size_t>(set->values()));
  std::int32_t label = 0;
  EGT_TRY(set->make({}, 0, pixels.data(), &label, stop));
  return set;
}

void ImageFolder::add_files(std::vector<std::string> paths) {
  std::sort(paths.begin(), paths.end(), is_before);
  const bool has_classes = std::any_of(paths.begin(), paths.end(), is_in_class);
  if (!has_classes) classes_ = hashed_classes;
  std::string name;  // of the last class
  for (std::string& path : paths) {
    std::int32_t label = static_cast<std::int32_t>(hash_of(path) % hashed_classes);
    if (has_classes) {
      if (!is_in_class(path)) {
        ++left_out_;
        continue;
      }
      std::string own = path.substr(0, path.find('/'));
      if (own != name) ++classes_;
      name = std::move(own);
      label = classes_ - 1;
    }
    files_.push_back({std::move(path), label});
  }
  is_bad_ = std::make_unique<std::atomic<bool>[]>(files_.size());
}

/// Index of the file for sample `number`: a random permutation per epoch that needs no memory. It is number *
/// a + b modulo the file count, with `a` coprime to the count. `a` and `b` are random per epoch.
std::uint64_t ImageFolder::shuffled(std::uint64_t number) const {
  const std::uint64_t count = files_.size();
  const Philox4 words = philox4x32_10(number / count, 0, key(of_order));
  std::uint64_t a = words.w[0] % count;
  while (std::gcd(a, count) != 1) a = (a + 1) % count;
  return (number % count * a + words.w[1]) % count;
}

Status ImageFolder::make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
                         const std::stop_token& stop) const {
  const auto rank = static_cast<std::uint64_t>(batch.rank), ranks = static_cast<std::uint64_t>(batch.ranks);
  std::uint64_t file = shuffled((batch.step * ranks + rank) * static_cast<std::uint64_t>(batch.images) +
                                static_cast<std::uint64_t>(index));
  for (std::size_t tried = 0; tried < files_.size(); ++tried, file = (file + 1) % files_.size()) {
    if (is_bad_[file]) continue;
    if (stop.stop_requested()) return {StatusCode::stopped, "a stop was asked for while images were read"};
    const Status status = read_image(folder_ + "/" + files_[file].path, side(), pixels);
    if (status.ok()) {
      *label = files_[file].label;
      return {};
    }
    if (status.code() != StatusCode::io_error) return status;
    mark_bad(file, status);
  }
  const std::lock_guard lock(mutex_);
  return {StatusCode::unavailable, fmt::format("{}: none of its {} images can be used: {}",
                                               printable(folder_), files_.size(), first_bad_)};
}

void ImageFolder::mark_bad(std::uint64_t file, const Status& why) const {
  const std::lock_guard lock(mutex_);
  if (is_bad_[file].exchange(true)) return;
  if (bad_count_++ == 0) first_bad_ = why.what();
}

std::string ImageFolder::complaint() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  if (left_out_ > 0) text = fmt::format("{} images are next to the class folders", left_out_);
  if (bad_count_ > 0)
    text += fmt::format("{}{} of {} files cannot be used, the first: {}", text.empty() ? "" : "; ",
                        bad_count_.load(), files_.size(), first_bad_);
  return text;
}

}  // namespace egt
