#include "egt/core/digest.hpp"

#include <fmt/format.h>

namespace egt {

std::string to_string(const Digest& digest) {
  return fmt::format("{:016x}{:016x}", digest.a, digest.b);
}

}  // namespace egt
