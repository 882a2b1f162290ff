#include <cstdio>
#include <memory>

#include "egt/ranks/mpi_control.hpp"
#include "mpi_test.hpp"

namespace egt::test {
namespace {

std::unique_ptr<MpiSession> session;

class FailurePrinter final : public testing::EmptyTestEventListener {
  // GoogleTest holds its lock while a failure is told, so it cannot be asked for the test's name then.
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s, %s:%d: %s\n", session->place().rank, test_.c_str(), result.file_name(),
                 result.line_number(), result.summary());
  }

  std::string test_;
};

/// Has any rank failed? All ranks get the same answer, so that none is killed before it has printed.
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
