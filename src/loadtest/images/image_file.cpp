#include "loadtest/images/image_file.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "egt/core/text.hpp"

#ifdef EGT_WITH_STB
#include <stb/stb_image.h>
#endif

namespace egt {
namespace {

/// Pixel rows with one byte per channel.
struct Picture {
  std::int64_t width = 0, height = 0, channels = 0;  ///< 1 or 3 channels
  const unsigned char* data = nullptr;
  std::unique_ptr<unsigned char, decltype(&std::free)> memory{nullptr,
                                                              &std::free};  ///< unless in the file's memory
};

Status bad(std::string why) {
  return {StatusCode::io_error, std::move(why)};
}

Status check_size(std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1) return bad("has no pixels");
  if (width > max_image_pixels / height)
    return bad(fmt::format("is too large: {} x {} pixels; the limit is {}", width, height, max_image_pixels));
  return {};
}

/// Reads a number of a PNM header at `at`, after white space and comments; negative if there is none.
std::int64_t header_number(std::string_view bytes, std::size_t& at) {
  while (at < bytes.size() && (std::isspace(static_cast<unsigned char>(bytes[at])) || bytes[at] == '#'))
    at = bytes[at] == '#' ? std::min(bytes.find('\n', at), bytes.size()) : at + 1;
  std::int32_t number = -1;
  at = static_cast<std::size_t>(std::from_chars(bytes.data() + at, bytes.data() + bytes.size(), number).ptr -
                                bytes.data());
  return number;
}

Status decode_pnm(std::string_view bytes, Picture& picture) {
  std::size_t at = 2;
  picture.width = header_number(bytes, at);
  picture.height = header_number(bytes, at);
  picture.channels = bytes[1] == '6' ? 3 : 1;
  if (header_number(bytes, at) != 255) return bad("is no PPM of 8 bits a channel (largest value 255)");
  EGT_TRY(check_size(picture.width, picture.height));
  const std::size_t wanted = static_cast<std::size_t>(picture.width * picture.height * picture.channels);
  if (bytes.size() < at + 1 + wanted) return bad("is truncated");
  picture.data = reinterpret_cast<const unsigned char*>(bytes.data()) + at + 1;
  return {};
}

#ifdef EGT_WITH_STB

/// The decoder's view of the file. Reading past its end reveals a truncated JPEG, because the decoder
/// replaces the missing rest by zeros.
struct Reading {
  std::string_view bytes;
  std::size_t at = 0;
  bool beyond = false;

  static int read(void* user, char* to, int size) {
    auto& self = *static_cast<Reading*>(user);
    const std::string_view part = self.bytes.substr(self.at, static_cast<std::size_t>(size));
    std::copy(part.begin(), part.end(), to);
    self.at += part.size();
    if (part.empty()) self.beyond = true;
    return static_cast<int>(part.size());
  }
  static void skip(void* user, int size) {
    auto& self = *static_cast<Reading*>(user);
    self.at += std::min(static_cast<std::size_t>(std::max(size, 0)), self.bytes.size() - self.at);
  }
  static int is_over(void* user) {
    const auto& self = *static_cast<Reading*>(user);
    return self.at == self.bytes.size();
  }
};

Status decode_png_or_jpeg(std::string_view bytes, Picture& picture) {
  constexpr stbi_io_callbacks calls{&Reading::read, &Reading::skip, &Reading::is_over};
  int width = 0, height = 0, channels = 0;
  Reading header{bytes}, all{bytes};
  if (stbi_info_from_callbacks(&calls, &header, &width, &height, &channels))
    EGT_TRY(check_size(width, height));  // otherwise, the reason is reported below
  picture.memory.reset(stbi_load_from_callbacks(&calls, &all, &width, &height, &channels, 3));
  if (all.beyond) return bad("is truncated");
  if (!picture.memory) return bad(fmt::format("cannot be decoded: {}", stbi_failure_reason()));
  picture.width = width, picture.height = height, picture.channels = 3;
  picture.data = picture.memory.get();
  return {};
}

#else

Status decode_png_or_jpeg(std::string_view, Picture&) {
  return bad(
      "PNG and JPEG need stb_image.h, which was not there when this was built: install libstb-dev and build "
      "again, or use PPM");
}

#endif

Status decode(std::string_view bytes, Picture& picture) {
  if (bytes.starts_with("P5") || bytes.starts_with("P6")) return decode_pnm(bytes, picture);
  if (bytes.starts_with("\x89PNG") || bytes.starts_with("\xFF\xD8"))
    return decode_png_or_jpeg(bytes, picture);
  return bad("is no PPM, PNG or JPEG");
}

/// The two pixels of a row or column between which a new pixel lies.
struct Between {
  std::int64_t first, second;
  float weight;  ///< of the second
};

std::vector<Between> places(std::int64_t from, std::int64_t to) {
  std::vector<Between> all;
  for (std::int64_t i = 0; i < to; ++i) {
    const double middle =
        (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to);
    const double at = std::clamp(middle - 0.5, 0.0, static_cast<double>(from - 1));
    const auto first = static_cast<std::int64_t>(at);
    all.push_back(
        {first, std::min(first + 1, from - 1), static_cast<float>(at - static_cast<double>(first))});
  }
  return all;
}

void resize(const Picture& picture, std::int64_t side, float* out) {
  const std::vector<Between> columns = places(picture.width, side);
  const auto mix = [](float a, float b, float weight) { return a + weight * (b - a); };
  for (const Between& y : places(picture.height, side)) {
    const unsigned char* const upper = picture.data + y.first * picture.width * picture.channels;
    const unsigned char* const lower = picture.data + y.second * picture.width * picture.channels;
    for (const Between& x : columns)
      for (std::int64_t c = 0; c < 3; ++c) {
        const std::int64_t channel = picture.channels == 3 ? c : 0;
        const std::int64_t left = x.first * picture.channels + channel;
        const std::int64_t right = x.second * picture.channels + channel;
        const float value =
            mix(mix(upper[left], upper[right], x.weight), mix(lower[left], lower[right], x.weight), y.weight);
        *out++ = value / 127.5f - 1.0f;
      }
  }
}

}  // namespace

bool is_image_name(std::string_view name) {
  const std::size_t point = name.rfind('.');
  if (point == std::string_view::npos) return false;
  const std::string ending = to_lower(name.substr(point));
  return ending == ".ppm" || ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

Status read_image(const std::string& path, std::int64_t side, float* pixels) {
  const Result<std::string> bytes = read_regular_file(path, static_cast<std::size_t>(max_image_bytes));
  if (bytes.status().code() == StatusCode::io_error)
    return {StatusCode::io_error, fmt::format("{}: {}", printable(path), bytes.status().what())};
  const auto refuse = [&](std::string_view why) { return bad(fmt::format("{} {}", printable(path), why)); };
  if (!bytes.ok()) return refuse(bytes.status().what());
  if (bytes.value().empty()) return refuse("is empty");
  Picture picture;
  if (const Status status = decode(bytes.value(), picture); !status.ok()) return refuse(status.what());
  resize(picture, side, pixels);
  return {};
}

}  // namespace egt
