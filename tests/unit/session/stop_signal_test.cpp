#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "session/stop_signal.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ExitedWithCode;
using testing::KilledBySignal;

// A stop request lasts for the process's lifetime, so each of these tests runs in its own process.

/// Exits with 0 if `number` is the reason for the stop.
[[noreturn]] void end_told(int number) {
  for (int i = 0; i < 200 && StopSignal::received() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::_Exit(StopSignal::received() == number ? 0 : 1);
}

class StopSignals : public testing::Test {
 protected:
  StopSignals() {
    std::string name = fs::temp_directory_path() / "egt_stop_XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~StopSignals() override { fs::remove_all(folder_); }

  fs::path file() const { return folder_ / "stop"; }
  void touch() const { std::ofstream(file()).flush(); }

  fs::path folder_;
};

TEST_F(StopSignals, TheFirstOfThemIsRemembered) {
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2})
    EXPECT_EXIT(
        {
          StopSignal::take();
          StopSignal::end_start();
          std::raise(number);
          std::raise(SIGINT);
          end_told(number);
        },
        ExitedWithCode(0), "");
}

/// As a library's constructor or MPI_Init may.
TEST_F(StopSignals, EndAStartThatHangs) {
  EXPECT_EXIT(
      {
        StopSignal::take();
        std::raise(SIGTERM);
        std::raise(SIGINT);
        pause();
      },
      ExitedWithCode(6), "stopped by SIGTERM before the run began");
  EXPECT_EXIT(
      {
        StopSignal::take();
        std::raise(SIGINT);
        while (true) pause();
      },
      ExitedWithCode(6), "stopped by SIGINT before the run began");
  EXPECT_EXIT(
      {
        StopSignal::take();
        std::raise(SIGALRM);  // after ten minutes
        while (true) pause();
      },
      ExitedWithCode(3), "did not start within 10 minutes");
}

TEST_F(StopSignals, AreTakenThoughTheyWereBlocked) {
  EXPECT_EXIT(
      {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        std::raise(SIGUSR2);
        StopSignal::take();
        end_told(SIGUSR2);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, AHangUpIsTakenUnlessItWasIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_DFL);  // nohup ignores it
        StopSignal::take();
        std::raise(SIGHUP);
        end_told(SIGHUP);
      },
      ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        StopSignal::take();
        std::raise(SIGHUP);
        std::_Exit(StopSignal::received());
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, EndTheProcessOnceGivenBack) {
  EXPECT_EXIT(
      {
        StopSignal::take();
        std::raise(SIGTERM);
        StopSignal::give_back();
      },
      KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(
      {
        StopSignal::take();
        StopSignal::give_back();
        std::raise(SIGUSR1);
      },
      KilledBySignal(SIGUSR1), "");
}

TEST_F(StopSignals, AFileIsTakenAndRemoved) {
  EXPECT_EXIT(
      {
        StopSignal::take();
        const auto watch = StopFile::open(folder_.string(), true);
        touch();
        for (int i = 0; i < 200 && fs::exists(file()); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        if (!fs::exists(file())) end_told(StopSignal::stop_file);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, ASignalLeavesLittleTimeAndAFileAllOfIt) {
  EXPECT_EXIT(
      {
        StopSignal::take();
        StopSignal::ask(StopSignal::stop_file);
        const bool behind_file = StopSignal::leaves_little_time();
        std::raise(SIGTERM);
        const bool behind_both = StopSignal::leaves_little_time();
        std::_Exit(!behind_file && behind_both && StopSignal::received() == StopSignal::stop_file ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, AFileOfTheLastMomentIsTakenToo) {
  EXPECT_EXIT(
      {
        {
          const auto watch = StopFile::open(folder_.string(), true);
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          touch();
        }
        if (!fs::exists(file())) end_told(StopSignal::stop_file);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, AFileOfAnEarlierRunIsOnlyRemoved) {
  touch();
  const timespec times[] = {{.tv_sec = 1'000'000, .tv_nsec = 0}, {.tv_sec = 1'000'000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file().c_str(), times, 0), 0);
  EXPECT_EXIT(
      {
        StopSignal::take();
        { const auto watch = StopFile::open(folder_.string(), true); }
        std::_Exit(!fs::exists(file()) && StopSignal::received() == 0 ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, AFileThatWaitsForANewRunIsTaken) {
  touch();
  const timespec times[] = {{.tv_sec = 1'000'000, .tv_nsec = 0}, {.tv_sec = 1'000'000, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, file().c_str(), times, 0), 0);
  EXPECT_EXIT(
      {
        StopSignal::take();
        { const auto watch = StopFile::open(folder_.string(), false); }
        end_told(StopSignal::stop_file);
      },
      ExitedWithCode(0), "");
}

TEST_F(StopSignals, AFolderThatIsGoneHoldsNobody) {
  const auto watch = StopFile::open((folder_ / "none").string(), false);
  EXPECT_EQ(StopSignal::received(), 0);
}

TEST(StopNames, AreAsTheRecordsTellThem) {
  EXPECT_STREQ(signal_name(SIGUSR2), "SIGUSR2");
  EXPECT_STREQ(signal_name(StopSignal::stop_file), "the file stop");
}

}  // namespace
}  // namespace egt
