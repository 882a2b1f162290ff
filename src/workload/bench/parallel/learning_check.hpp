#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace egt {

/// Training that does not learn is no training: its first losses against its last ones.
class LearningCheck {
 public:
  void add(double loss);
  /// The mean of the last few.
  double recent() const;
  /// What is wrong, in one line; empty: nothing, or too little was seen. Without `must_fall` only that a loss
  /// is not finite: of gradients sent in small part, which may learn too slowly to be seen.
  std::string failure(bool must_fall = true) const;

 private:
  static constexpr std::size_t compared = 4;        ///< of which the means are compared
  static constexpr std::int64_t fewest_steps = 20;  ///< before they are

  std::int64_t steps_ = 0, not_finite_ = -1;  ///< the first such step
  std::vector<double> first_;
  std::deque<double> last_;
};

}  // namespace egt
