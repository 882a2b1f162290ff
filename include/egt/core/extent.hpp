#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "egt/core/record.hpp"

namespace egt {

/// Min, mean, max and last value of a metric that may be missing.
class Extent {
 public:
  template <typename T>
  void add(const std::optional<T>& value) {
    if (!value) return;
    last_ = static_cast<double>(*value);
    min_ = count_ == 0 ? last_ : std::min(min_, last_);
    max_ = count_ == 0 ? last_ : std::max(max_, last_);
    sum_ += last_;
    ++count_;
  }
  std::optional<double> max() const { return count_ > 0 ? std::optional(max_) : std::nullopt; }
  /// {min, avg, max, last}, or null if there was no value.
  Json json() const {
    if (count_ == 0) return nullptr;
    return {{"min", min_}, {"avg", sum_ / static_cast<double>(count_)}, {"max", max_}, {"last", last_}};
  }

 private:
  double min_ = 0, max_ = 0, last_ = 0, sum_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace egt
