#include "egt/session/stop_signal.hpp"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace egt {

namespace {

std::atomic<int> first_signal{0};  // a handler can reach nothing else
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int number) {
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
}

void handle(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, nullptr);
}

constexpr int stops[] = {SIGINT, SIGTERM, SIGUSR1};

}  // namespace

StopSignal::StopSignal() {
  first_signal = 0;
  for (const int number : stops) handle(number, remember);
  for (const int number : {SIGPIPE, SIGXFSZ}) handle(number, SIG_IGN);  // the write then fails, and says why
}

StopSignal::~StopSignal() {
  for (const int number : stops) handle(number, SIG_DFL);
}

int StopSignal::received() {
  return first_signal;
}

const char* signal_name(int number) {
  switch (number) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "a signal";
  }
}

}  // namespace egt
