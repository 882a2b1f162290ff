#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "egt/core/status.hpp"

namespace egt {

/// No image of more pixels, and no file of more bytes, is read; a decoder takes no block of more bytes.
constexpr std::int64_t most_image_pixels = std::int64_t{1} << 26;
constexpr std::int64_t most_image_bytes = std::int64_t{1} << 29;

/// Does the name end as an image's: .ppm, .png, .jpg, .jpeg, in any case?
bool is_image_name(std::string_view name);

/// Decodes PPM or PGM of 8 bits, and, where stb_image was there when this was built, PNG and JPEG, whatever
/// its name says; transparency and EXIF are not looked at. Resizes it to side x side x 3 (bilinear between
/// the 4 nearest pixels; the ratio of its sides is not kept) and maps 0 .. 255 to -1 .. 1. io_error, one line
/// that begins with the path: it cannot be read, is no regular file, is no such image, or is too large. Any
/// thread.
Status read_image(const std::string& path, std::int64_t side, float* pixels);

}  // namespace egt
