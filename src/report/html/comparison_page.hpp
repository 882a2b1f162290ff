#pragma once

#include <string>

#include "report/compare/comparison.hpp"

namespace egt {

/// What `compare` came to as one HTML file for people, which needs nothing else and no script: a pure
/// function.
std::string comparison_page(const Comparison& comparison);

namespace page {

/// A chart a test of `bench`: its speed-up against the number of devices, beside that of an ideal machine.
/// Empty: nothing was measured on more than one number of devices.
std::string scaling_charts(const Comparison& comparison);

}  // namespace page
}  // namespace egt
