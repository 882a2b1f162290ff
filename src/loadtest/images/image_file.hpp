#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

namespace egt {

/// Limits of an image's pixels and of a file's bytes. The second also limits a decoder's memory blocks.
constexpr std::int64_t max_image_pixels = std::int64_t{1} << 26;
constexpr std::int64_t max_image_bytes = std::int64_t{1} << 29;

/// Whether the name has an image extension: .ppm, .png, .jpg or .jpeg, in any case.
bool is_image_name(std::string_view name);

/// Decodes 8-bit PPM or PGM and, if built with stb_image, PNG and JPEG, by content and not by name. Ignores
/// transparency and EXIF. Resizes to side x side x 3 (bilinear, ignoring the aspect ratio) and maps 0 .. 255
/// to -1 .. 1. io_error, in one line that begins with the path: unreadable, not a regular file, not such an
/// image, or too large. Any thread.
Status read_image(const std::string& path, std::int64_t side, float* pixels);

}  // namespace egt
