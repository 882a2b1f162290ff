#pragma once

#include <string_view>

/// Page assets of this folder, embedded by CMake.
namespace egt {

extern const std::string_view page_html, page_css, page_js;
/// dygraphs; empty if the build did not find it.
extern const std::string_view page_charts_js, page_charts_css;

}  // namespace egt
