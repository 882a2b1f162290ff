#include "judge/version.hpp"

namespace egt {

const char* program_version() {
  return EGT_VERSION;
}

}  // namespace egt
