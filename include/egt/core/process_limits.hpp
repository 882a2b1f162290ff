#pragma once

#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "egt/core/status.hpp"

namespace egt {

/// True if this process's address space is limited (ulimit -v).
bool is_address_space_limited();

/// Checks that `what` ("the start of MPI") can map this many bytes, else out_of_memory with the limit. For
/// libraries that crash or hang if a mapping fails.
Status check_address_space(const std::string& what, std::size_t bytes);

/// unavailable: why the system created no thread for `what` ("the telemetry"), and the limits that may apply.
Status no_thread(const std::string& what, const std::system_error& error);

/// The only way in which this program starts a std::thread or std::jthread. Returns an error if the process
/// may not create more of them.
template <typename Thread = std::thread, typename Body>
Result<Thread> start_thread(const std::string& what, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    return no_thread(what, error);
  }
}

/// Checks that this many more threads can run concurrently, else fails as `no_thread`. For libraries that
/// crash or hang if they get none.
Status check_threads(const std::string& what, int count);

/// Checks that this many more files can be opened, else unavailable with the limit.
Status check_descriptors(const std::string& what, int count);

}  // namespace egt
