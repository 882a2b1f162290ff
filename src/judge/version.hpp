#pragma once

namespace egt {

/// The version from the build, for example "0.1.0".
const char* program_version();

}  // namespace egt
