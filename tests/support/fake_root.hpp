#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace egt::test {

/// A folder that imitates a machine's root while a test runs.
class FakeRoot {
 public:
  FakeRoot()
      : path_(std::filesystem::temp_directory_path() /
              ("egt_root_" + std::to_string(getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(path_);
  }
  ~FakeRoot() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace egt::test
