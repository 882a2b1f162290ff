#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace egt {

/// Detects training that does not learn, by comparing its first losses with its last ones.
class LearningCheck {
 public:
  void add(double loss);
  /// The mean of the last few losses.
  double recent() const;
  /// The problem in one line; empty if none, or too few steps. Without `must_fall`, only non-finite losses
  /// count: top-k gradients may learn too slowly to see.
  std::string failure(bool must_fall = true) const;

 private:
  static constexpr std::size_t compared = 4;        ///< number of losses in each mean
  static constexpr std::int64_t fewest_steps = 20;  ///< before the means are compared

  std::int64_t steps_ = 0, not_finite_ = -1;  ///< first step with a non-finite loss
  std::vector<double> first_;
  std::deque<double> last_;
};

}  // namespace egt
