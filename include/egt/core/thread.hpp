#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// Why the system gave no thread for `what` ("the telemetry"), and the limits that may be in the way:
/// unavailable.
Status no_thread(const std::string& what, const std::system_error& error);

/// The one way in which this program starts a thread, a std::thread or std::jthread: a process that may have
/// no more of them is told so.
template <typename Thread = std::thread, typename Body>
Result<Thread> start_thread(const std::string& what, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    return no_thread(what, error);
  }
}

}  // namespace egt
