#pragma once

namespace egt {

/// "0.1.0", as the build says.
const char* program_version();

}  // namespace egt
