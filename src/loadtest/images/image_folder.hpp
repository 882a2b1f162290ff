#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "loadtest/images/image_set.hpp"

namespace egt {

/// The image files below a folder. Its subfolders are the classes, in byte order of their names, as in
/// torchvision's ImageFolder. Images next to them are skipped. If no subfolder has images, those of the
/// folder are used, in 16 classes by a hash of their names. Each epoch covers the files of all ranks once, in
/// its own order. The next file replaces an unusable one.
class ImageFolder : public ImageSet {
 public:
  static constexpr int hashed_classes = 16;

  /// Lists the files and reads one of them as a check. unavailable: the folder cannot be listed, or has no
  /// usable image or more than 2^24 entries; one line that names the folder. stopped: a stop was requested.
  static Result<std::unique_ptr<ImageFolder>> open(const std::string& folder, std::uint64_t seed,
                                                   std::int64_t side, const std::stop_token& stop);

  int classes() const override { return classes_; }
  Status make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
              const std::stop_token& stop) const override;

  std::int64_t files() const { return static_cast<std::int64_t>(files_.size()); }
  /// Images next to the class folders.
  std::int64_t left_out() const { return left_out_; }
  /// Unusable files found so far.
  std::int64_t bad_files() const { return bad_count_.load(); }
  /// One line about files that are not used; empty if none.
  std::string complaint() const;

 private:
  struct File {
    std::string path;  ///< relative to the folder
    std::int32_t label = 0;
  };

  ImageFolder(std::string folder, std::uint64_t seed, std::int64_t side)
      : ImageSet(seed, side), folder_(std::move(folder)) {}
  void add_files(std::vector<std::string> paths);
  std::uint64_t shuffled(std::uint64_t number) const;
  void mark_bad(std::uint64_t file, const Status& why) const;

  const std::string folder_;
  std::vector<File> files_;  ///< sorted
  int classes_ = 0;
  std::int64_t left_out_ = 0;
  std::unique_ptr<std::atomic<bool>[]> is_bad_;  ///< by file
  mutable std::atomic<std::int64_t> bad_count_ = 0;
  mutable std::mutex mutex_;
  mutable std::string first_bad_;  ///< the reason; guarded by mutex_
};

}  // namespace egt
