#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "command/options/options.hpp"

/// Valid and invalid command lines and config files.
namespace egt::test {

inline Result<Options> parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"extreme_gpu_trainer"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_options(static_cast<int>(argv.size()), argv.data(), "1.2.3");
}

inline Options good(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  EXPECT_TRUE(result.ok()) << result.status().what();
  return result.ok() ? result.value() : Options();
}

/// The arguments of a command line without quotes.
inline std::vector<std::string> words(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The error of an invalid command line: invalid_argument, one line.
inline std::string refused(std::vector<std::string> arguments) {
  auto result = parse(std::move(arguments));
  EXPECT_FALSE(result.ok());
  if (result.ok()) return {};
  EXPECT_EQ(result.status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(result.status().what().find('\n'), std::string::npos);
  return result.status().what();
}

/// A config file that exists during this object's lifetime.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("egt_options_" + std::to_string(getpid()) + "_" + std::to_string(made_++) + ".toml")) {
    std::ofstream(path_) << text;
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  static inline int made_ = 0;
  std::filesystem::path path_;
};

}  // namespace egt::test
