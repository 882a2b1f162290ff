#include "report/console/console.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "judge/result.hpp"
#include "tests/support/record_fixtures.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class ConsoleTest : public testing::Test {
 protected:
  Console console(ConsoleStyle style) {
    return Console(style, results_, messages_, [this] { return now_; });
  }
  static std::vector<Json> starts(int size) {
    std::vector<Json> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(fixtures::start(rank, size).body);
    return all;
  }
  static Record epoch(int rank) {
    return {.kind = RecordKind::epoch,
            .rank = rank,
            .step = 99,
            .body = {{"epoch", 0},
                     {"steps", 100},
                     {"ms", 4247.3},
                     {"samples_per_second", 48220.4},
                     {"tflops", 402.13},
                     {"loss", 0.125},
                     {"all_reduce_gb_per_s", 231.0},
                     {"precision", "bf16"}}};
  }
  static Record notice(const char* level) {
    return {.kind = RecordKind::notice, .body = {{"level", level}, {"text", "by the way"}}};
  }

  std::ostringstream results_, messages_;
  double now_ = 0;
};

TEST_F(ConsoleTest, TheReportIsTheSeedsInTheirOrder) {
  Console one = console({});
  one.on_start(starts(2));
  one.on_memory_filled(0, 129394ull << 20, 143771ull << 20);
  ASSERT_TRUE(one.write(epoch(0)).ok());
  ASSERT_TRUE(one.write(epoch(1)).ok());
  const auto records = fixtures::good_run(2);
  const Verdict verdict = judge(records);
  one.on_verdict(verdict, build_result(records, verdict), "r1");
  EXPECT_EQ(results_.str(),
            "*** EXTREME GPU MEMORY STRESS TEST ***\n"
            "\n"
            "GPU 0 (NVIDIA H200): 143771 MB total, 143204 MB free\n"
            "GPU 1 (NVIDIA H200): 143771 MB total, 143204 MB free\n"
            "\n"
            "Network configuration:\n"
            "  Batch size: 2048\n"
            "  Architecture: 4096 → 8192 → 512\n"
            "\n"
            "GPU 0 Memory: 129394/143771 MB (90.0%)\n"
            "\n"
            "PASS  node1  2x NVIDIA H200  31 s  0 errors\n"
            "GPU  errors  power W avg/limit  ECC new\n"
            "0         0          600 / 700        0\n"
            "1         0          600 / 700        0\n"
            "\n"
            "Verdict: pass (exit code 0)\n"
            "  all planned work was done and verified on 2 ranks\n"
            "  Verified: 2 TFLOP of GEMMs, 6 weight consistency checks, 10.0 GB of memory\n"
            "Files: r1/result.json, r1/journal.rank*.jsonl\n");
  EXPECT_EQ(messages_.str(),
            "EXTREME EPOCH 0 completed in 4247 ms: 48220 samples/s, 402 TFLOP/s per rank, loss 0.125, "
            "all-reduce 231 GB/s, bf16\n")
      << "progress";
}

TEST_F(ConsoleTest, TheBannerIsOfBurnAlone) {
  for (const char* command : {"burn", "links"}) {
    std::vector<Json> bodies = starts(1);
    bodies[0]["command"] = command;
    results_.str("");
    console({}).on_start(bodies);
    EXPECT_EQ(results_.str().find("STRESS TEST") != std::string::npos, bodies[0]["command"] == "burn");
  }
}

TEST_F(ConsoleTest, TheTableFollowsItsTerminal) {
  int master = -1, window = -1;
  winsize size{.ws_row = 24, .ws_col = 30, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &window, nullptr, nullptr, &size), 0);
  Console one = console({.results_terminal = ::ttyname(window)});
  const auto records = fixtures::good_run(2);
  one.on_verdict(judge(records), build_result(records, judge(records)), "r1");
  EXPECT_THAT(results_.str(), HasSubstr("GPU  errors    power W\n")) << results_.str();
  ::close(window);
  ::close(master);
}

TEST_F(ConsoleTest, WithoutATerminalALineIsPrintedEveryTenSeconds) {
  Console one = console({});
  one.on_start(starts(2));
  for (now_ = 0; now_ < 39; now_ += 0.5) {  // an epoch and a progress record per half second
    Record next = epoch(0);
    next.body["epoch"] = static_cast<int>(2 * now_);
    Record progress = fixtures::progress(1);
    progress.body["telemetry"]["temperature_c"] = {{"avg", 60.0}, {"last", 71.0}};
    for (const Record& record : {next, fixtures::progress(0), progress}) (void)one.write(record);
    if (now_ == 5) (void)one.write(fixtures::fault(1));
    (void)one.flush();
  }
  std::vector<std::string> lines;
  std::istringstream text(messages_.str());
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 6u) << messages_.str();
  EXPECT_THAT(lines[0], testing::StartsWith("EXTREME EPOCH 0 completed in 4247 ms"))
      << "the first one at once";
  EXPECT_THAT(lines[1], testing::StartsWith("FAULT"));
  EXPECT_EQ(
      lines[3],
      "1970-01-01T00:17:10.500Z  51 %  30 s elapsed, 30 s left, step 100, EXTREME EPOCH 20 completed in "
      "4247 ms: 48220 samples/s, 402 TFLOP/s per rank, loss 0.125, all-reduce 231 GB/s, bf16, hottest "
      "71 C, 1 fault");
  messages_.str("");
  now_ += 60;
  (void)one.flush();
  EXPECT_THAT(messages_.str(), HasSubstr(" step 100, EXTREME EPOCH 77 "));
  messages_.str("");
  now_ += 60;
  (void)one.flush();
  EXPECT_EQ(messages_.str(), "") << "there is nothing new";
}

TEST_F(ConsoleTest, AResultThatCouldNotBeWrittenIsNotAmongTheFiles) {
  Console one = console({});
  one.on_verdict({"incomplete", 4, {"no space"}}, Json::object(), "r1", false);
  EXPECT_THAT(results_.str(), testing::EndsWith("\nFiles: r1/journal.rank*.jsonl\n"));
}

TEST_F(ConsoleTest, WhatWasNotMeasuredIsLeftOut) {
  Console one = console({});
  one.on_start(starts(1));
  Record record = epoch(0);
  for (const char* key : {"ms", "tflops", "samples_per_second", "all_reduce_gb_per_s"})
    record.body[key] = nullptr;
  (void)one.write(record);
  EXPECT_THAT(messages_.str(), HasSubstr("EXTREME EPOCH 0 completed: loss 0.125, bf16\n"));
}

TEST_F(ConsoleTest, HostDefaultsAreTold) {
  auto bodies = starts(1);
  bodies[0]["host_defaults"] = {"--batch 128", "--memory 256MB"};
  bodies[0]["identity"]["backend"] = "host";
  Console one = console({});
  one.on_start(bodies);
  EXPECT_THAT(results_.str(), HasSubstr("Defaults of the host backend: --batch 128 --memory 256MB\n"));
  EXPECT_THAT(results_.str(), HasSubstr("CPU 0 (NVIDIA H200)"));
}

TEST_F(ConsoleTest, SeveralHostsAreNamed) {
  auto bodies = starts(2);
  bodies[1]["identity"]["hostname"] = "node2";
  Console one = console({});
  one.on_start(bodies);
  EXPECT_THAT(results_.str(), HasSubstr("143204 MB free on node2\n"));
}

TEST_F(ConsoleTest, AFaultThatIsToldBeforeItIsLocatedSaysSo) {
  Console one = console({});
  one.on_start(starts(2));
  Record first = fixtures::fault(1, 40);
  first.body["provisional"] = true;
  (void)one.write(first);
  EXPECT_THAT(messages_.str(), HasSubstr("\n  not located yet, rank 1, step 40"));
}

TEST_F(ConsoleTest, AFaultThatIsNotLocatedYetIsInTheProgress) {
  Console one = console({.progress = ProgressStyle::lines});
  one.on_start(starts(2));
  const auto last_line = [&](Record fault, bool is_provisional) {
    if (is_provisional) fault.body["provisional"] = true;
    (void)one.write(fault);
    messages_.str("");
    for (int rank = 0; rank < 2; ++rank) (void)one.write(fixtures::progress(rank));
    now_ += 60;
    (void)one.flush();
    return messages_.str();
  };
  EXPECT_THAT(last_line(fixtures::fault(-1, 40), true), testing::EndsWith(", 1 fault, not located yet\n"));
  EXPECT_THAT(last_line(fixtures::fault(1, 40), false), testing::EndsWith(", 1 fault\n"));
}

TEST_F(ConsoleTest, AFaultBeginsWithItsDevice) {
  Console one = console({});
  std::vector<Json> bodies = starts(3);
  bodies[1]["identity"]["device"]["pci_bus_id"] = "00000000:18:00.0";
  bodies[1]["identity"]["device"]["serial"] = "1650";
  bodies[2]["identity"]["device"].update({{"name", "AMD EPYC"}, {"uuid", nullptr}});
  bodies[2]["identity"]["backend"] = "host";
  one.on_start(bodies);
  const std::string before = results_.str();
  (void)one.write(fixtures::fault(1, 40));
  EXPECT_EQ(
      messages_.str(),
      "FAULT GPU 1, UUID GPU-1, PCI 00000000:18:00.0, serial 1650: memory in block 3\n"
      "  rank 1, step 40, byte 4096, expected 0x0, actual 0x1 (bit 0), detected by patrol, blame certain\n");
  EXPECT_EQ(results_.str(), before);
  messages_.str("");
  Record of_step = fixtures::fault(1, 40);
  of_step.body["offset"] = 0;
  (void)one.write(of_step);
  EXPECT_THAT(messages_.str(), HasSubstr("step 40, expected"));
  messages_.str("");
  Record of_suspects = fixtures::fault(-1, 40);
  of_suspects.body["suspects"] = {0, 2};
  for (const Record& record : {fixtures::fault(2), fixtures::fault(7), of_suspects}) (void)one.write(record);
  EXPECT_THAT(messages_.str(), HasSubstr("FAULT CPU 2 (AMD EPYC): memory in block 3\n  rank 2, step 40,"));
  EXPECT_THAT(messages_.str(), HasSubstr("FAULT on rank 7: memory in block 3\n  step 40,"))
      << "no start record";
  EXPECT_THAT(messages_.str(), HasSubstr("FAULT on one of ranks 0, 2: memory in block 3\n  step 40,"));
}

TEST_F(ConsoleTest, EachStreamHasColoursOfItsOwn) {
  Console messages = console({.messages_colour = true});
  (void)messages.write(fixtures::fault(-1));
  messages.on_verdict({"pass", 0, {"why"}}, Json::object(), "d");
  EXPECT_THAT(messages_.str(), testing::StartsWith("\x1b[31mFAULT on an unknown device"));
  EXPECT_THAT(messages_.str(), testing::EndsWith("\x1b[0m\n"));
  EXPECT_THAT(results_.str(), Not(HasSubstr("\x1b")));
  messages_.str("");
  Console results = console({.results_colour = true});
  (void)results.write(fixtures::fault(-1));
  results.on_verdict({"pass", 0, {"why"}}, Json::object(), "d");
  EXPECT_THAT(messages_.str(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(results_.str(), HasSubstr("\x1b[32mVerdict: pass (exit code 0)\x1b[0m\n"));
}

TEST_F(ConsoleTest, AnInjectionIsAMessage) {
  Console one = console({});
  ASSERT_TRUE(one.write(fixtures::injection("weight:rank=1,step=19,layer=3")).ok());
  ASSERT_TRUE(one.write(fixtures::injection("memory:rank=1,step=19,count=4")).ok());
  EXPECT_EQ(messages_.str(),
            "Injected on rank 1, step 20: weight, layer 3, bits 0x00000080 (weights of layer 3)\n"
            "Injected on rank 1, step 20: memory, 4 words, bits 0x00000080 (weights of layer 3)\n");
}

TEST_F(ConsoleTest, AFloodOfFaultsIsCutShort) {
  Console one = console({});
  for (int i = 0; i < 1000; ++i) (void)one.write(fixtures::fault(0, i));
  const std::string text = messages_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2 * 50 + 1);
}

TEST_F(ConsoleTest, TheAddressOfTheLivePageIsPrintedInEveryStyle) {
  for (const ProgressStyle style : {ProgressStyle::none, ProgressStyle::lines, ProgressStyle::bar}) {
    Console one = console({.progress = style, .messages = LogLevel::error});
    messages_.str("");
    one.on_live_page("http://127.0.0.1:8080/");
    EXPECT_EQ(messages_.str(), "live page: http://127.0.0.1:8080/\n");
  }
}

TEST_F(ConsoleTest, NoneShowsVerdictFaultsAndWarningsOnly) {
  Console one = console({.progress = ProgressStyle::none});
  one.on_start(starts(1));
  one.on_memory_filled(0, 1, 2);
  for (const Record& record : {epoch(0), fixtures::progress(0), notice("info")}) (void)one.write(record);
  (void)one.flush();
  EXPECT_EQ(results_.str() + messages_.str(), "");
  (void)one.write(notice("warning"));
  EXPECT_EQ(messages_.str(), "Warning: by the way\n");
  one.on_verdict({"fault", 1, {"why"}}, Json::object(), "d");
  EXPECT_THAT(results_.str(), HasSubstr("Verdict: fault (exit code 1)\n  why\n"));
}

TEST_F(ConsoleTest, TheLevelChoosesMessagesButNeverTheVerdict) {
  const auto reported = [this](LogLevel level) {
    messages_.str("");
    results_.str("");
    Console one = console({.messages = level});
    one.on_start(starts(1));
    for (const Record& record :
         {notice("info"), notice("warning"), fixtures::fault(0), epoch(0), fixtures::progress(0)})
      (void)one.write(record);
    now_ += 20;
    (void)one.flush();
    one.on_verdict({"fault", 1, {"why"}}, Json::object(), "d");
    EXPECT_THAT(results_.str(), HasSubstr("Verdict: fault (exit code 1)\n  why\n"));
    const std::string text = messages_.str();
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(reported(LogLevel::debug), 6);
  EXPECT_EQ(reported(LogLevel::info), 6) << "a fault has two lines";
  EXPECT_EQ(reported(LogLevel::warning), 3);
  EXPECT_EQ(reported(LogLevel::error), 2);
  EXPECT_THAT(messages_.str(), testing::StartsWith("FAULT"));
  EXPECT_EQ(reported(LogLevel::off), 0);
}

TEST_F(ConsoleTest, LinesAreFreeOfEscapes) {
  Console one = console({});
  one.on_start(starts(1));
  for (const Record& record : {epoch(0), fixtures::progress(0), fixtures::fault(0)}) (void)one.write(record);
  (void)one.flush();
  EXPECT_THAT(results_.str() + messages_.str(), Not(HasSubstr("\x1b")));
}

TEST_F(ConsoleTest, TheBarHasTimesAndARowADevice) {
  Console one = console({.progress = ProgressStyle::bar, .size = {200, 0}});
  auto bodies = starts(2);
  bodies[0]["identity"]["device"]["power_limit_w"] = 700;
  bodies[1]["identity"]["device"]["power_limit_w"] = nullptr;
  one.on_start(bodies);
  messages_.str("");
  (void)one.write(fixtures::progress(0));
  (void)one.write(fixtures::progress(1));
  (void)one.write(fixtures::fault(1));
  (void)one.flush();
  const std::string text = messages_.str();
  EXPECT_THAT(text, HasSubstr("]  51 %  30 s elapsed, 30 s left, step 100\n"));
  EXPECT_THAT(text, testing::ContainsRegex("GPU 0 .* 600/700 W .* 402 .*5.00 GB .* 0\n"));
  EXPECT_THAT(text, testing::ContainsRegex("GPU 1 .* 600 W .* 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("EXTREME EPOCH")));
}

TEST_F(ConsoleTest, TheBarIsRedrawnInPlaceAtMostFourTimesASecond) {
  Console one = console({.progress = ProgressStyle::bar});
  one.on_start(starts(1));
  for (now_ = 0; now_ < 1.0; now_ += 0.01) {
    (void)one.write(fixtures::progress(0));
    (void)one.flush();
  }
  const std::string text = messages_.str();
  std::size_t bars = 0;
  for (std::size_t at = text.find(" elapsed"); at != std::string::npos; at = text.find(" elapsed", at + 1))
    ++bars;
  EXPECT_EQ(bars, 4u);
  EXPECT_THAT(text, HasSubstr("\r\x1b[3A\x1b[J"));  // three lines: bar, header, one device
}

TEST_F(ConsoleTest, MessagesAreWrittenAboveTheBar) {
  Console one = console({.progress = ProgressStyle::bar});
  one.on_start(starts(1));
  (void)one.write(fixtures::progress(0));
  (void)one.flush();
  messages_.str("");
  (void)one.write(fixtures::fault(0));
  EXPECT_THAT(messages_.str(), testing::StartsWith("\r\x1b[3A\x1b[JFAULT"))
      << "from the first column: a terminal echoes Ctrl-C";
  messages_.str("");
  one.on_verdict({"pass", 0, {"why"}}, Json::object(), "d");
  (void)one.flush();
  EXPECT_EQ(messages_.str(), "") << "the bar is gone for good";
  EXPECT_THAT(results_.str(), testing::EndsWith("Files: d/result.json, d/journal.rank*.jsonl\n"));
}

TEST_F(ConsoleTest, WithoutALimitThereIsNoShareDone) {
  Console one = console({.progress = ProgressStyle::lines});
  std::vector<Json> bodies = starts(1);
  for (const char* key : {"requested_duration_seconds", "requested_steps"}) bodies[0][key] = nullptr;
  one.on_start(bodies);
  messages_.str("");
  (void)one.write(fixtures::progress(0));
  now_ += 60;
  (void)one.flush();
  EXPECT_THAT(messages_.str(), HasSubstr(" elapsed, step "));
  EXPECT_THAT(messages_.str(), Not(HasSubstr(" % ")));
}

TEST_F(ConsoleTest, NoLineOfTheBarIsWiderThanTheTerminal) {
  Console one = console({.progress = ProgressStyle::bar, .size = {40, 0}});
  one.on_start(starts(1));
  (void)one.write(epoch(0));
  messages_.str("");
  (void)one.write(fixtures::progress(0));
  (void)one.flush();
  std::istringstream lines(messages_.str());
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 40u) << line;
}

TEST_F(ConsoleTest, AFaultIsWrappedInATerminalOnly) {
  int master = -1, window = -1;
  winsize size{.ws_row = 24, .ws_col = 60, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &window, nullptr, nullptr, &size), 0);
  const auto lines_of_fault = [&](ConsoleStyle style) {
    Console one = console(std::move(style));
    one.on_start(starts(2));
    messages_.str("");
    (void)one.write(fixtures::fault(1, 40));
    std::vector<std::string> lines;
    std::istringstream stream(messages_.str());
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  EXPECT_EQ(lines_of_fault({}).size(), 2u);
  const std::vector<std::string> wrapped = lines_of_fault({.terminal = ::ttyname(window)});
  EXPECT_GT(wrapped.size(), 2u);
  for (const std::string& line : wrapped) EXPECT_LE(line.size(), 60u) << line;
  ::close(window);
  ::close(master);
}

TEST_F(ConsoleTest, TheBarFollowsItsWindow) {
  int master = -1, window = -1;
  winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &window, nullptr, nullptr, &size), 0);
  Console one = console({.progress = ProgressStyle::bar, .terminal = ::ttyname(window)});
  one.on_start(starts(3));
  const auto drawn = [&] {
    messages_.str("");
    for (int rank = 0; rank < 3; ++rank) (void)one.write(fixtures::progress(rank));
    now_ += 1;
    (void)one.flush();
    return messages_.str();
  };
  const auto lines_of = [](const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(
        text.substr(text.rfind('\x1b') == std::string::npos ? 0 : text.rfind("\x1b[J") + 3));
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> wide = lines_of(drawn());
  ASSERT_EQ(wide.size(), 5u);  // bar, header, three devices
  size.ws_col = 50;
  ASSERT_EQ(::ioctl(window, TIOCSWINSZ, &size), 0);
  std::size_t broken = 0;
  for (const std::string& line : wide) broken += (line.size() + 49) / 50;
  ASSERT_GT(broken, 5u);
  const std::string narrow = drawn();
  EXPECT_THAT(narrow, testing::StartsWith(fmt::format("\r\x1b[{}A\x1b[J", broken)));
  for (const std::string& line : lines_of(narrow)) EXPECT_LT(line.size(), 50u) << line;
  size.ws_row = 6;
  ASSERT_EQ(::ioctl(window, TIOCSWINSZ, &size), 0);
  const std::vector<std::string> low = lines_of(drawn());
  ASSERT_EQ(low.size(), 4u) << "what is above the first line could not be erased";
  EXPECT_EQ(low.back(), "(2 more lines)");
  EXPECT_THAT(drawn(), testing::StartsWith("\r\x1b[4A\x1b[J"));
  ::close(window);
  ::close(master);
}

TEST_F(ConsoleTest, AClosedOutputIsTold) {
  Console one = console({});
  results_.setstate(std::ios::badbit);
  EXPECT_THAT(one.write(epoch(0)).what(), HasSubstr("standard output"));
  results_.clear();
  messages_.setstate(std::ios::badbit);
  EXPECT_THAT(one.write(epoch(0)).what(), HasSubstr("standard error"));
}

/// A synthetic /proc with chains of processes.
class LauncherTerminal : public testing::Test {
 protected:
  LauncherTerminal() {
    std::string name = fs::temp_directory_path() / "egt_proc_XXXXXX";
    proc_ = mkdtemp(name.data());
  }
  ~LauncherTerminal() override { fs::remove_all(proc_); }

  void process(int pid, int parent, const char* name, const char* output, const char* error = "pipe:[2]") {
    const fs::path folder = proc_ / std::to_string(pid);
    fs::create_directories(folder / "fd");
    std::ofstream(folder / "comm") << name << '\n';
    std::ofstream(folder / "status") << "Name:\t" << name << "\nPPid:\t" << parent << "\n";
    fs::create_symlink(output, folder / "fd/1");
    fs::create_symlink(error, folder / "fd/2");
  }

  fs::path proc_;
};

TEST_F(LauncherTerminal, IsTheOneOfMpirun) {
  process(10, 1, "mpirun", "/dev/pts/4");
  process(11, 10, "bash", "pipe:[1]");
  process(12, 11, "extreme_gpu_tra", "/dev/pts/9");
  EXPECT_EQ(launcher_terminal(proc_, 12, 1), "/dev/pts/4");
}

TEST_F(LauncherTerminal, IsNoneWhereMpirunWritesToAFileThoughItsRanksHaveATerminal) {
  process(10, 1, "mpirun", "/tmp/out.txt");
  process(11, 10, "bash", "/dev/pts/9");
  process(12, 11, "extreme_gpu_tra", "/dev/pts/9");
  EXPECT_FALSE(launcher_terminal(proc_, 12, 1));
}

TEST_F(LauncherTerminal, IsLookedForByStream) {
  process(10, 1, "mpirun", "/tmp/out.txt", "/dev/pts/4");
  process(12, 10, "extreme_gpu_tra", "/dev/pts/9", "/dev/pts/9");
  EXPECT_FALSE(launcher_terminal(proc_, 12, 1));
  EXPECT_EQ(launcher_terminal(proc_, 12, 2), "/dev/pts/4");
}

TEST_F(LauncherTerminal, IsNoneWithoutALauncher) {
  process(11, 1, "bash", "/dev/pts/9");
  process(12, 11, "extreme_gpu_tra", "/dev/pts/9");
  EXPECT_FALSE(launcher_terminal(proc_, 12, 1));
  EXPECT_FALSE(launcher_terminal(proc_, 99, 1));
}

TEST(ConsoleStyle, AsksTheEnvironment) {
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(detect_console_style(ProgressStyle::lines).utf8);
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  setenv("NO_COLOR", "1", 1);
  const ConsoleStyle style = detect_console_style(ProgressStyle::bar);
  EXPECT_TRUE(style.utf8);
  EXPECT_FALSE(style.results_colour);
  EXPECT_FALSE(style.messages_colour);
  EXPECT_EQ(style.progress, ProgressStyle::bar);
  unsetenv("LC_ALL");
  unsetenv("NO_COLOR");
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);  // no launcher: no terminal
  EXPECT_EQ(detect_console_style(ProgressStyle::automatic).progress, ProgressStyle::lines);
  unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace egt
