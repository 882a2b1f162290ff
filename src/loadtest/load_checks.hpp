#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "loadtest/load_test.hpp"
#include "model/digest_exchange.hpp"
#include "workload/common/fault_reporter.hpp"

namespace egt {

/// Compares the tests' answers between all ranks, and with each rank's previous answers. A check computes all
/// answers in two rounds, which must agree on each rank. A fault identifies the rank whose answers differ,
/// else the minority's rank (see vote). One thread; all ranks make the same calls.
class LoadChecks {
 public:
  /// `environment` must outlive the checks.
  explicit LoadChecks(Environment& environment) : environment_(environment), reporter_(environment) {}

  /// Allocates memory and groups the ranks by device model. Call it again after a restart.
  Status prepare();
  /// Starts a new test and forgets previous answers. `name` is reported with its faults.
  Status begin(const LoadJob& job, const std::string& name);
  /// `step`: for the records. `between`: called between the two rounds, before their work is done.
  Status check(LoadJob& job, std::int64_t step, const std::function<Status()>& between = {});
  /// Whether a rank of the test was found wrong or suspected. The same on all ranks.
  bool found() const { return found_; }
  /// Checks that this rank passed.
  VerifiedWork work() const { return work_; }
  Status give_up(double timeout_seconds);

 private:
  using Questions = std::vector<std::size_t>;  ///< indices of answers

  Questions of_kind(LoadAnswerKind kind) const;
  /// Judges answers that change between checks. Returns true if all are right.
  bool judge_rounds(const std::vector<Answers>& all, const Questions& questions, std::int64_t step);
  bool judge(const std::vector<Answers>& answers, const Questions& questions, const char* kind,
             std::int64_t step, std::vector<Answers>& past);

  Environment& environment_;
  FaultReporter reporter_;
  std::string name_;
  std::vector<LoadAnswer> answers_;
  std::vector<Answers> past_;  ///< of the replays, one list per rank
  std::vector<int> groups_;
  bool found_ = false;
  VerifiedWork work_;
  std::unique_ptr<Event> made_;
  std::unique_ptr<DigestExchange> exchange_;
  std::vector<std::unique_ptr<DigestExchange>> given_up_;  ///< a library may still write to their memory
  std::unique_ptr<Stream> stream_;  ///< declared last: it waits for its work before the memory is freed
};

}  // namespace egt
