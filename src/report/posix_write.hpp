#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// no_space where the disk, the quota or the limit on files is full, else `otherwise`.
inline StatusCode code_of_errno(int error, StatusCode otherwise) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? StatusCode::no_space : otherwise;
}

/// All of `text`, however many calls it takes; 0, or the errno of the call that failed.
inline int write_all(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return errno;
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  return 0;
}

}  // namespace egt
