#include "device/shared/shared_handle.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>

namespace egt {
namespace {

TEST(Hexadecimal, EveryByteComesBack) {
  std::array<std::uint8_t, 256> bytes{}, back{};
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  ASSERT_TRUE(from_hex(to_hex(bytes.data(), bytes.size()), back.data(), back.size()).ok());
  EXPECT_EQ(back, bytes);
}

TEST(Hexadecimal, OtherTextsAreRefused) {
  std::uint16_t value = 0;
  for (const char* text : {"", "123", "12345", "12g4", "12 4", "12F4", "/234", ":234", "`234"})
    EXPECT_EQ(from_hex(text, &value, sizeof value).code(), StatusCode::invalid_argument) << text;
}

}  // namespace
}  // namespace egt
