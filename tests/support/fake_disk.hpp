#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "workload/file/file_layer.hpp"

namespace egt::test {

/// Files in memory, with hooks for tests.
struct FakeDisk {
  using Content = std::vector<char>;

  std::map<std::string, Content> files;
  bool direct = true;  ///< whether it supports direct I/O
  /// Called after a file was written and closed; `before`: its content when it was opened.
  std::function<void(const std::string& path, const Content& before)> written;
  /// Called before a file is opened.
  std::function<void(const std::string& path, FileAccess access)> opening;
};

class FakeFile : public OpenFile {
 public:
  FakeFile(FakeDisk& disk, std::string path, FileAccess access)
      : disk_(disk), path_(std::move(path)), access_(access), before_(disk.files[path_]) {
    if (access_ == FileAccess::create) content().clear();
  }
  ~FakeFile() override {
    if (access_ == FileAccess::rewrite && disk_.written) disk_.written(path_, before_);
  }
  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override {
    if (content().size() < offset + bytes) content().resize(offset + bytes);
    std::memcpy(content().data() + offset, data, bytes);
    return {};
  }
  Status read(void* data, std::size_t bytes, std::uint64_t offset) override {
    if (offset + bytes > content().size()) return {StatusCode::io_error, "the file ends"};
    std::memcpy(data, content().data() + offset, bytes);
    return {};
  }
  Result<std::uint64_t> size() override { return std::uint64_t{content().size()}; }
  Status sync() override { return {}; }
  Result<bool> drop_cache() override { return true; }

 private:
  FakeDisk::Content& content() { return disk_.files[path_]; }

  FakeDisk& disk_;
  const std::string path_;
  const FileAccess access_;
  const FakeDisk::Content before_;
};

class FakeClaim : public FileClaim {
 public:
  Status check() override { return {}; }
};

class FakeFileLayer : public FileLayer {
 public:
  explicit FakeFileLayer(FakeDisk& disk) : disk_(disk) {}
  FileSystem file_system(const std::string&) override { return {.type = "ext4", .memory = {}}; }
  Result<DiskSpace> space(const std::string&) override {
    return DiskSpace{.free_bytes = std::uint64_t{1} << 40, .total_bytes = std::uint64_t{1} << 40};
  }
  Result<std::unique_ptr<FileClaim>> claim(const std::string&) override {
    return std::unique_ptr<FileClaim>(new FakeClaim);
  }
  Leftovers remove_leftovers(const std::string&, const std::string&) override { return {}; }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    if (direct && !disk_.direct) return Status(StatusCode::unsupported, "not with direct I/O");
    if (disk_.opening) disk_.opening(path, access);
    return std::unique_ptr<OpenFile>(new FakeFile(disk_, path, access));
  }
  Status remove(const std::string& path) override {
    disk_.files.erase(path);
    return {};
  }

 private:
  FakeDisk& disk_;
};

}  // namespace egt::test
