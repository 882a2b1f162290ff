#pragma once

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/workload_fixture.hpp"
#include "workload/file/file_workload.hpp"

namespace egt::test {

constexpr std::uint64_t mebibyte = 1 << 20;

/// File-system hooks of a test; empty functions add nothing to the real operations.
struct Trouble {
  std::function<Status(std::uint64_t offset, std::size_t bytes)> before_write;
  std::function<void(char* data, std::uint64_t offset, std::size_t bytes)> after_read;
  std::function<Status(FileAccess access, bool direct)> before_open;
  std::function<bool()> skip_read;
  std::function<Status(std::uint64_t offset)> before_read;
  std::function<void(std::uint64_t offset)> after_write;
  bool real_space = false;
  FileSystem file_system{.type = "ext4", .memory = {}};
  DiskSpace space{.free_bytes = 1ull << 40, .total_bytes = 1ull << 40};
};

class TroubledFile : public OpenFile {
 public:
  TroubledFile(std::unique_ptr<OpenFile> file, const Trouble& trouble)
      : file_(std::move(file)), trouble_(trouble) {}
  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override {
    if (trouble_.before_write) EGT_TRY(trouble_.before_write(offset, bytes));
    EGT_TRY(file_->write(data, bytes, offset));
    if (trouble_.after_write) trouble_.after_write(offset);
    return {};
  }
  Status read(void* data, std::size_t bytes, std::uint64_t offset) override {
    if (trouble_.skip_read && trouble_.skip_read()) return {};
    if (trouble_.before_read) EGT_TRY(trouble_.before_read(offset));
    EGT_TRY(file_->read(data, bytes, offset));
    if (trouble_.after_read) trouble_.after_read(static_cast<char*>(data), offset, bytes);
    return {};
  }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return file_->sync(); }
  Result<bool> drop_cache() override { return file_->drop_cache(); }

 private:
  const std::unique_ptr<OpenFile> file_;
  const Trouble& trouble_;
};

/// The real file system with injected errors. Without direct I/O: temporary folders often lack it.
class TroubledLayer : public FileLayer {
 public:
  explicit TroubledLayer(const Trouble& trouble) : trouble_(trouble) {}
  Result<DiskSpace> space(const std::string& directory) override {
    EGT_TRY(real_->space(directory).status());
    return trouble_.real_space ? real_->space(directory) : trouble_.space;
  }
  FileSystem file_system(const std::string&) override { return trouble_.file_system; }
  Result<std::unique_ptr<FileClaim>> claim(const std::string& path) override { return real_->claim(path); }
  Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) override {
    return real_->remove_leftovers(directory, hostname);
  }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    if (trouble_.before_open) EGT_TRY(trouble_.before_open(access, direct));
    EGT_TRY_ASSIGN(std::unique_ptr<OpenFile> file, real_->open(path, access, false));
    return std::unique_ptr<OpenFile>(new TroubledFile(std::move(file), trouble_));
  }
  Status remove(const std::string& path) override { return real_->remove(path); }

 private:
  const Trouble& trouble_;
  const std::unique_ptr<FileLayer> real_ = make_posix_file_layer();
};

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    char name[] = "/tmp/egt_file_test.XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~FileTest() override { std::filesystem::remove_all(directory_); }

  FileOptions options(std::uint64_t size, int repeats = 2) const {
    return {.enabled = true,
            .directory = directory_,
            .size = size,
            .repeats = repeats,
            .every = 10,
            .budget = {},
            .rate_seconds = 0};
  }
  std::unique_ptr<FileWorkload> make(const FileOptions& options) {
    return std::make_unique<FileWorkload>(world_.environment, options,
                                          std::make_unique<TroubledLayer>(trouble_));
  }
  /// Prepared and started, with the first cycle requested.
  std::unique_ptr<FileWorkload> run(const FileOptions& options) {
    auto file = make(options);
    EXPECT_TRUE(file->prepare().ok());
    EXPECT_TRUE(file->start().ok());
    EXPECT_TRUE(file->enqueue({.index = 0}).ok());
    return file;
  }
  bool left_behind() const { return !std::filesystem::is_empty(directory_); }
  static std::uint64_t figure(const FileWorkload& file, const char* name) {
    return file.report().figures.at(name).get<std::uint64_t>();
  }
  static bool runs_through(const FileWorkload& file, std::uint64_t cycles) {
    return eventually([&] { return figure(file, "cycles") >= cycles; });
  }

  std::string directory_;
  Trouble trouble_;
  World world_;
};

}  // namespace egt::test
