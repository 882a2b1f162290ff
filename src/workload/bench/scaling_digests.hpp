#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "workload/bench/scaling_options.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Number of known answers that a job of the workload returns.
std::size_t answers_of(BenchWorkload workload);

/// Converts answers to values for sharing and `count` answers back, bit for bit.
std::vector<double> to_figures(const Answers& answers);
Answers from_figures(const double* figures, std::size_t count);

/// All ranks' known answers of a test. Compares them with the rank's previous answers and with ranks of the
/// same device model and the same batch size. The same on all ranks.
class BenchAnswers {
 public:
  /// `models`: by rank; ranks with equal numbers must give the same bits.
  explicit BenchAnswers(std::vector<int> models) : models_(std::move(models)) {}

  /// `sizes` and `now`: batch size and answers by rank; a rank without answers took no part. Returns the
  /// wrong ranks as `vote` finds them; earlier answers count as witnesses too.
  std::vector<Mismatch> judge(const std::string& test, const std::vector<std::int64_t>& sizes,
                              const std::vector<Answers>& now);

 private:
  using Key = std::tuple<std::string, std::int64_t, int>;  ///< test, size, rank

  const std::vector<int> models_;
  std::map<Key, Answers> past_;  ///< answers that were never in doubt
};

}  // namespace egt
