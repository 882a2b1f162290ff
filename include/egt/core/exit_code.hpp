#pragma once

#include <atomic>

#include "egt/core/status.hpp"

namespace egt {

/// The contract's exit codes, equal on every rank.
namespace exit_code {
inline constexpr int pass = 0, fault = 1, wrong_usage = 2, no_environment = 3, incomplete = 4, degraded = 5,
                     interrupted = 6;
inline constexpr int all[] = {pass, fault, wrong_usage, no_environment, incomplete, degraded, interrupted};
}  // namespace exit_code

/// True once this process has begun a run. Its journal is then judged, however the process ends. Any thread.
inline std::atomic<bool> run_has_begun{false};

/// Exit code of a run that did not begin, or of a command that failed.
inline int exit_code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok:
      return exit_code::pass;
    case StatusCode::invalid_argument:
      return exit_code::wrong_usage;
    case StatusCode::timeout:
    case StatusCode::aborted:
    case StatusCode::internal:
      return exit_code::incomplete;
    case StatusCode::stopped:
      return exit_code::interrupted;
    case StatusCode::device_error:
      return exit_code::fault;
    default:
      return exit_code::no_environment;
  }
}

}  // namespace egt
