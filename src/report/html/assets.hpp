#pragma once

#include <string_view>

/// The files of this folder that a page is made of, embedded by CMake.
namespace egt {

extern const std::string_view page_html, page_css, page_js;
/// dygraphs; empty: the build found none.
extern const std::string_view page_charts_js, page_charts_css;

}  // namespace egt
