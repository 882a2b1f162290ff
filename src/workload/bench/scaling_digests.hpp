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

/// How many known answers a job of the workload gives.
std::size_t answers_of(BenchWorkload workload);

/// Bit for bit, as figures to be shared, and `count` answers from there.
std::vector<double> to_figures(const Answers& answers);
Answers from_figures(const double* figures, std::size_t count);

/// What every rank answered to the known-answer questions of a test: compared with what it answered before,
/// and against the ranks of the same device model that had the same question. The same on all ranks.
class BenchAnswers {
 public:
  /// `models`: by rank; ranks of one number must give the same bits.
  explicit BenchAnswers(std::vector<int> models) : models_(std::move(models)) {}

  /// By rank: the size of the batch that it was asked about, and what it answered; no answers: it took no
  /// part. Who is wrong, as `vote` finds it, those who answered earlier being witnesses too.
  std::vector<Dissent> judge(const std::string& test, const std::vector<std::int64_t>& sizes,
                             const std::vector<Answers>& now);

 private:
  using Key = std::tuple<std::string, std::int64_t, int>;  ///< test, size, rank

  const std::vector<int> models_;
  std::map<Key, Answers> past_;  ///< answers that nobody doubted
};

}  // namespace egt
