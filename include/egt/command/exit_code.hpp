#pragma once

#include "egt/core/status.hpp"

namespace egt {

/// The contract's exit code of a run that did not begin, or of a command that failed.
inline int exit_code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::ok:
      return 0;
    case StatusCode::invalid_argument:
      return 2;
    case StatusCode::timeout:
    case StatusCode::aborted:
    case StatusCode::internal:
      return 4;
    case StatusCode::stopped:
      return 6;
    default:
      return 3;  // the environment cannot
  }
}

}  // namespace egt
