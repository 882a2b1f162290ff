#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "command/options/options.hpp"

namespace egt {

/// A command's own defaults for options that the user did not give; to be told.
class OwnDefaults {
 public:
  explicit OwnDefaults(Options& options) : options_(options) {}

  /// `value`: of the option `name`; `text`: as the user would write what it becomes.
  template <typename T>
  void put(const char* name, T& value, T own, const std::string& text) {
    if (options_.given.contains(name)) return;
    value = std::move(own);
    std::erase_if(options_.host_defaults,
                  [&](const std::string& one) { return one.starts_with(fmt::format("--{} ", name)); });
    told_ += fmt::format(" --{} {}", name, text);
  }
  /// " --batch 16 --memory 48MB"
  const std::string& told() const { return told_; }

 private:
  Options& options_;
  std::string told_;
};

}  // namespace egt
