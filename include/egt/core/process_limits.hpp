#pragma once

#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// Is this process's address space limited (ulimit -v)?
bool is_address_space_limited();

/// Is there room for `what` ("the start of MPI") to map so many bytes? out_of_memory with the limit where
/// not: for libraries that crash or hang where a mapping is refused.
Status check_address_space(const std::string& what, std::size_t bytes);

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

/// Could so many threads run at the same time, beside those that do? As `no_thread` where not: for libraries
/// that crash or hang where they get none.
Status check_threads(const std::string& what, int count);

/// Could so many files be opened, beside those that are open? unavailable with the limit where not.
Status check_descriptors(const std::string& what, int count);

}  // namespace egt
