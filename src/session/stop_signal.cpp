#include "session/stop_signal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <thread>

#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/process_limits.hpp"

namespace egt {

namespace {

using namespace std::chrono_literals;

constexpr const char* stop_file_name = "stop";
constexpr auto look_period = 200ms;
constexpr auto leave_patience = 1s;
constexpr unsigned answer_seconds = 4;        ///< from the first signal until the program can handle it
constexpr unsigned start_seconds = 600;       ///< for libraries, MPI_Init and the driver together
constexpr std::time_t clock_tolerance_s = 1;  ///< between the process start and a file's timestamp

constinit std::atomic<int> first_signal{0};  // a handler can access nothing else
constinit std::atomic<bool> any_signal{false};
constinit std::atomic<bool> is_starting{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

/// Not _exit, which mpi_start.cpp replaces.
[[noreturn]] void end_stopped_start() {
  for (const char* part : {"extreme_gpu_trainer: stopped by ", signal_name(StopSignal::received()),
                           " before the run began; the start did not answer\n"})
    static_cast<void>(write_all(STDERR_FILENO, part));
  std::_Exit(exit_code::interrupted);
}

void remember(int number) {
  const bool is_first = !any_signal;
  StopSignal::ask(number);
  if (!is_starting) return;
  if (!is_first) end_stopped_start();
  ::alarm(answer_seconds);
}

void end_late_start(int) {
  if (!is_starting) return;
  if (StopSignal::received() != 0) end_stopped_start();
  static_cast<void>(
      write_all(STDERR_FILENO,
                "extreme_gpu_trainer: MPI or the GPU driver did not start within 10 minutes; see "
                "dmesg and nvidia-smi\n"));
  std::_Exit(exit_code::no_environment);
}

struct Handled {
  int number;
  bool stops;               ///< else it is ignored
  struct sigaction before;  ///< previous action, restored by `give_back`
};
// Constant-initialized, since `take` runs before the program's constructors, which must not overwrite these.
constinit Handled handled[] = {{SIGINT, true, {}},   {SIGTERM, true, {}}, {SIGQUIT, true, {}},
                               {SIGHUP, true, {}},   {SIGUSR1, true, {}}, {SIGUSR2, true, {}},
                               {SIGPIPE, false, {}}, {SIGXFSZ, false, {}}};
constinit std::time_t taken_at = 0;  ///< system time of the call of `take`

}  // namespace

void StopSignal::take() {
  taken_at = std::time(nullptr);
  for (Handled& one : handled) sigaction(one.number, nullptr, &one.before);
  is_starting = true;
  keep();
  ::alarm(start_seconds);
}

void StopSignal::keep() {
  sigset_t all;
  sigemptyset(&all);
  for (const Handled& one : handled) {
    sigaddset(&all, one.number);
    // SIGHUP is ignored if nohup requested a run that outlives its terminal.
    if (one.number == SIGHUP && one.before.sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = one.stops ? remember : SIG_IGN;
    action.sa_flags = SA_RESTART;
    sigaction(one.number, &action, nullptr);
  }
  if (is_starting) {
    struct sigaction action {};
    action.sa_handler = end_late_start;
    sigaction(SIGALRM, &action, nullptr);
    sigaddset(&all, SIGALRM);
  }
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);  // the mask is inherited from a parent that blocked them
}

void StopSignal::end_start() {
  is_starting = false;
  ::alarm(0);
}

void StopSignal::give_back() {
  end_start();
  for (const Handled& one : handled) sigaction(one.number, &one.before, nullptr);
  if (const int number = received(); number > 0) std::raise(number);
}

void StopSignal::ask(int number) {
  if (number != stop_file) any_signal = true;
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
}

int StopSignal::received() {
  return first_signal;
}

bool StopSignal::leaves_little_time() {
  return any_signal;
}

bool StopSignal::wants_the_end() {
  const int number = received();
  return number == SIGINT || number == SIGTERM || number == SIGQUIT || number == SIGHUP;
}

const char* signal_name(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case StopSignal::stop_file:
      return "the file stop";
    default:
      return "a signal";
  }
}

struct StopFile::Watch {
  std::string directory;
  bool is_resumed = false;
  std::mutex mutex;
  std::condition_variable wake;
  bool leaving = false, left = false;

  void look() const;
  void run();
};

/// Opening the directory forces a network file system to query its server again.
void StopFile::Watch::look() const {
  const Descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return;
  struct stat found {};
  if (::fstatat(folder.get(), stop_file_name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!is_resumed || found.st_mtime + clock_tolerance_s >= taken_at) StopSignal::ask(StopSignal::stop_file);
    ::unlinkat(folder.get(), stop_file_name, 0);
  }
}

void StopFile::Watch::run() {
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    last = leaving;
    lock.unlock();
    look();  // also once at the end, so that a file created last is not left behind
    lock.lock();
    wake.wait_for(lock, look_period, [&] { return leaving; });
  }
  left = true;
  wake.notify_all();
}

Result<std::unique_ptr<StopFile>> StopFile::open(const std::string& directory, bool is_resumed) {
  const auto watch = std::make_shared<Watch>();
  watch->directory = directory;
  watch->is_resumed = is_resumed;
  EGT_TRY_ASSIGN(std::thread thread, start_thread("the stop file", [watch] { watch->run(); }));
  thread.detach();
  return std::unique_ptr<StopFile>(new StopFile(watch));
}

StopFile::~StopFile() {
  std::unique_lock lock(watch_->mutex);
  watch_->leaving = true;
  watch_->wake.notify_all();
  watch_->wake.wait_for(lock, leave_patience, [&] { return watch_->left; });
}

}  // namespace egt
