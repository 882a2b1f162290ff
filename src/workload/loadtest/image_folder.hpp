#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "workload/loadtest/image_set.hpp"

namespace egt {

/// The image files below a folder. Its sub-folders are the classes, in the order of their names' bytes, as
/// torchvision's ImageFolder has them; images that lie beside them are left out. Where no sub-folder has an
/// image, those in the folder itself are taken, each of one of 16 classes by a hash of its name. Each epoch
/// goes through all files of all ranks once, in an order of its own. In the place of a file that cannot be
/// used comes the next one.
class ImageFolder : public ImageSet {
 public:
  static constexpr int hashed_classes = 16;

  /// Lists the files and reads one. unavailable, one line that names the folder: it cannot be listed, has no
  /// image or more than 2^24 entries, or none of its images can be used. stopped: a stop was asked for.
  static Result<std::unique_ptr<ImageFolder>> open(const std::string& folder, std::uint64_t seed,
                                                   std::int64_t side, const std::stop_token& stop);

  int classes() const override { return classes_; }
  Status make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
              const std::stop_token& stop) const override;

  std::int64_t files() const { return static_cast<std::int64_t>(files_.size()); }
  /// Images beside the classes' folders.
  std::int64_t left_out() const { return left_out_; }
  /// Files found until now that cannot be used.
  std::int64_t bad_files() const { return bad_count_.load(); }
  /// What is to be told of files that are not used, in one line; empty: nothing.
  std::string complaint() const;

 private:
  struct File {
    std::string path;  ///< below the folder
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
  std::unique_ptr<std::atomic<bool>[]> is_bad_;  ///< of each file
  mutable std::atomic<std::int64_t> bad_count_ = 0;
  mutable std::mutex mutex_;
  mutable std::string first_bad_;  ///< why; under mutex_
};

}  // namespace egt
