#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "egt/ranks/agreement.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_control.hpp"
#if EGT_TESTS_NEED_GPUS
#include "device/cuda/cuda_device.hpp"
#endif

namespace egt::test {
namespace {

constexpr int skipped_exit_code = 77;  ///< ctest's SKIP_RETURN_CODE

std::unique_ptr<MpiSession> session;

/// The reason why these ranks cannot run the tests; empty if they can. A failing GPU is no such reason.
Result<std::string> why_skipped([[maybe_unused]] const RankPlace& place) {
#if EGT_TESTS_NEED_GPUS
  EGT_TRY_ASSIGN(const int gpus, cuda_device_count());
  if (place.local_size != place.size) return std::string("these ranks are on several hosts");
  if (gpus < place.local_size)
    return fmt::format("{} has {} GPUs for {} ranks", place.hostname, gpus, place.local_size);
#endif
  return std::string();
}

/// The same on all ranks before any test runs; empty if all ranks can run the tests.
Result<std::string> why_any_skipped() {
  EGT_TRY_ASSIGN(const auto control, open_mpi_control(*session, 20));
  const Result<std::string> own = why_skipped(session->place());
  EGT_TRY(agree(*control, own.status()));
  EGT_TRY_ASSIGN(const auto all, control->gather(own.value()));
  std::string first;
  for (const std::string& one : all)
    if (first.empty()) first = one;
  return control->broadcast(first);
}

class FailurePrinter final : public testing::EmptyTestEventListener {
  // GoogleTest holds its lock while it reports a failure, so the test's name cannot be queried then.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s, %s:%d: %s\n", session->place().rank, test_.c_str(), result.file_name(),
                 result.line_number(), result.summary());
  }

  /// After ranks took different paths through a test, later collectives would not match. Hence the first
  /// failure ends the job, after all ranks had time to print theirs.
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Failed()) return;
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::fprintf(stderr, "rank %d: the tests end here\n", session->place().rank);
    std::_Exit(1);  // mpirun ends the other ranks
  }

  std::string test_;
};

/// True if any rank has failed. All ranks get the same answer, so that none is killed before it has printed.
bool any_failed(bool failed) {
  const auto control = open_mpi_control(*session, 20);
  if (!control.ok()) return true;
  const auto all = control.value()->gather(failed ? "failed" : "");
  if (!all.ok()) return true;
  bool any = false;
  for (const std::string& one : all.value()) any = any || !one.empty();
  const auto verdict = control.value()->broadcast(any ? "failed" : "");
  return !verdict.ok() || !verdict.value().empty();
}

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto opened = MpiSession::open(argc, argv);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.status().what().c_str());
    return 1;
  }
  session = std::move(opened.value());
  const Result<std::string> reason = why_any_skipped();
  if (!reason.ok() || !reason.value().empty()) {
    if (session->place().rank == 0)
      std::fprintf(stderr, "%s: %s\n", reason.ok() ? "skipped" : "failed",
                   reason.ok() ? reason.value().c_str() : reason.status().what().c_str());
    session.reset();
    return reason.ok() ? skipped_exit_code : 1;
  }
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (session->place().rank != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailurePrinter);
  const bool failed = any_failed(RUN_ALL_TESTS() != 0);
  session.reset();
  return failed ? 1 : 0;
}

}  // namespace

MpiSession& mpi_session() {
  return *session;
}

}  // namespace egt::test

int main(int argc, char** argv) {
  return egt::test::run(argc, argv);
}
