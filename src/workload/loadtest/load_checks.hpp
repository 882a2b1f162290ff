#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/common/digest_exchange.hpp"
#include "workload/common/fault_reporter.hpp"
#include "workload/loadtest/load_test.hpp"

namespace egt {

/// Compares what tests give on all ranks, and with what each rank gave before. A check makes all answers of a
/// test in two rounds, which must give the same on each rank. Faults name the rank whose answers differ, else
/// that of the minority (see vote). One thread; all ranks make the same calls.
class LoadChecks {
 public:
  /// `environment` outlives the checks.
  explicit LoadChecks(Environment& environment) : environment_(environment), reporter_(environment) {}

  /// Takes memory; ranks agree on who is of whose device model. After a restart again.
  Status prepare();
  /// Of a new test: forgets the past. `name` is told with its faults.
  Status begin(const LoadJob& job, const std::string& name);
  /// `step`: for the records. `between`: called between the two rounds, with their work not done yet.
  Status check(LoadJob& job, std::int64_t step, const std::function<Status()>& between = {});
  /// Was any rank found wrong in the test, or suspected? The same on all ranks.
  bool found() const { return found_; }
  /// Checks that this rank passed.
  VerifiedWork work() const { return work_; }
  Status give_up(double timeout_seconds);

 private:
  using Questions = std::vector<std::size_t>;  ///< indices of answers

  Questions of_kind(LoadAnswerKind kind) const;
  /// Of what changes between checks. Is all of it right?
  bool judge_rounds(const std::vector<Answers>& all, const Questions& questions, std::int64_t step);
  bool judge(const std::vector<Answers>& answers, const Questions& questions, const char* kind,
             std::int64_t step, std::vector<Answers>& past);

  Environment& environment_;
  FaultReporter reporter_;
  std::string name_;
  std::vector<LoadAnswer> answers_;
  std::vector<Answers> past_;  ///< of the replays, one list a rank
  std::vector<int> groups_;
  bool found_ = false;
  VerifiedWork work_;
  std::unique_ptr<Event> made_;
  std::unique_ptr<DigestExchange> exchange_;
  std::vector<std::unique_ptr<DigestExchange>> given_up_;  ///< a library may still write to their memory
  std::unique_ptr<Stream> stream_;  ///< last: it waits for its work before the memory goes
};

}  // namespace egt
