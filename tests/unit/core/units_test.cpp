#include "egt/core/units.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace egt {
namespace {

std::uint64_t size(std::string_view text) {
  const auto bytes = parse_size(text);
  EXPECT_TRUE(bytes.ok()) << text << ": " << bytes.status().what();
  return bytes.ok() ? bytes.value() : ~std::uint64_t{0};
}

double duration(std::string_view text) {
  const auto seconds = parse_duration(text);
  EXPECT_TRUE(seconds.ok()) << text << ": " << seconds.status().what();
  return seconds.ok() ? seconds.value() : -1;
}

void expect_refused(const Status& status, std::string_view text) {
  EXPECT_EQ(status.code(), StatusCode::invalid_argument) << "'" << text << "'";
  EXPECT_NE(status.what().find("allowed"), std::string::npos) << status.what();
  EXPECT_EQ(status.what().find('\n'), std::string::npos) << status.what();
}

TEST(ParseSize, KnowsEverySuffix) {
  EXPECT_EQ(size("0"), 0u);
  EXPECT_EQ(size("0.0"), 0u);
  EXPECT_EQ(size("512B"), 512u);
  EXPECT_EQ(size("7B"), 7u);
  EXPECT_EQ(size("2KB"), 2'000u);
  EXPECT_EQ(size("3MB"), 3'000'000u);
  EXPECT_EQ(size("72GB"), 72'000'000'000u);
  EXPECT_EQ(size("1TB"), 1'000'000'000'000u);
  EXPECT_EQ(size("2KiB"), 2048u);
  EXPECT_EQ(size("3MiB"), 3u << 20);
  EXPECT_EQ(size("10GiB"), 10ull << 30);
  EXPECT_EQ(size("5TiB"), 5ull << 40);
  EXPECT_EQ(size("8G"), 8'000'000'000u);
  EXPECT_EQ(size("8k"), 8'000u);
  EXPECT_EQ(size("80gb"), 80'000'000'000u);
  EXPECT_EQ(size("2gIb"), 2ull << 30);
  EXPECT_EQ(size("1.5 GB"), 1'500'000'000u);
}

TEST(ParseBitRate, KnowsBitsAndBytes) {
  const auto rate = [](std::string_view text) {
    const auto parsed = parse_bit_rate(text);
    EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().what();
    return parsed.ok() ? parsed.value() : -1;
  };
  EXPECT_EQ(rate("0"), 0);
  EXPECT_EQ(rate("7b/s"), 7);
  EXPECT_EQ(rate("3Kb/s"), 3e3);
  EXPECT_EQ(rate("100Mb/s"), 1e8);
  EXPECT_EQ(rate("20Gb/s"), 20e9);
  EXPECT_EQ(rate("1.6Tb/s"), 1.6e12);
  EXPECT_EQ(rate("2.5GB/s"), 20e9);
  EXPECT_EQ(rate("5MB/s"), 40e6);
  EXPECT_EQ(rate("20 Gb/s"), 20e9);
  for (const char* text : {"", "20", "20Gb", "20GB", "-1Gb/s", "Gb/s", "nan", "20gb/s", "20GiB/s"})
    expect_refused(parse_bit_rate(text).status(), text);
}

TEST(FormatBitRate, ThreeDigits) {
  EXPECT_EQ(format_bit_rate(0), "0 b/s");
  EXPECT_EQ(format_bit_rate(100e6), "100 Mb/s");
  EXPECT_EQ(format_bit_rate(25e9), "25 Gb/s");
  EXPECT_EQ(format_bit_rate(3.1449e12), "3.14 Tb/s");
  EXPECT_EQ(format_bit_rate(999.6e6), "1 Gb/s");
}

TEST(ParseSize, TakesFractions) {
  EXPECT_EQ(size("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(size("0.5KiB"), 512u);
  EXPECT_EQ(size(".25KB"), 250u);
  EXPECT_EQ(size("8.B"), 8u);
}

TEST(ParseSize, IsExactUpToTheLargestSize) {
  EXPECT_EQ(size("18446744073709551615B"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(size("9007199254740993B"), 9007199254740993u);  // 2^53 + 1 is not representable as a double
  EXPECT_EQ(size("16777215TiB"), 16777215ull << 40);
}

TEST(ParseSize, RefusesWhatDoesNotFit) {
  for (const char* text : {"18446744073709551616B", "16777216TiB", "20000000TB", "1e30",
                           "99999999999999999999GB", "16777216.0TiB", "0.5B", "1.5B"})
    expect_refused(parse_size(text).status(), text);
  const std::string endless(400, '9');
  expect_refused(parse_size(endless).status(), endless);
}

TEST(ParseSize, RefusesBadText) {
  for (const char* text :
       {"90",  "0.5", "00001", "",      " ",         "GB",           "-1",       "-1GB",   "+1GB", "1  2GB",
        "1gi", "1 ",  "1bG",   "1GBx",  "x1GB",      "0x10",         "1,5GB",    "1..5GB", ".",    ".GB",
        "inf", "nan", "90%",   "1GB\n", "1\xC3\xA9", "\xE2\x82\xAC", "\xFF\xFE", "1e3"})
    expect_refused(parse_size(text).status(), text);
  expect_refused(parse_size(std::string_view("1\0GB", 4)).status(), "1<NUL>GB");
}

TEST(UnitIn, IsWhatStandsBehindTheNumber) {
  EXPECT_EQ(unit_in("100ms"), "ms");
  EXPECT_EQ(unit_in("90"), "");
  EXPECT_EQ(unit_in("1.5 GB"), "GB");
  for (const char* text : {"", "GB", "-1", "1..5GB", "nan"}) EXPECT_EQ(unit_in(text), std::nullopt) << text;
}

TEST(SizeOrShare, IsZeroOnlyWhereNothingIsAskedFor) {
  for (const char* text : {"0", "0%", "0GB"})
    EXPECT_TRUE(parse_size_or_share(text).value().is_zero()) << text;
  for (const char* text : {"1B", "0.0000001%"})
    EXPECT_FALSE(parse_size_or_share(text).value().is_zero()) << text;
}

TEST(ParseDuration, KnowsEverySuffix) {
  EXPECT_DOUBLE_EQ(duration("90"), 90);
  EXPECT_DOUBLE_EQ(duration("90s"), 90);
  EXPECT_DOUBLE_EQ(duration("5m"), 300);
  EXPECT_DOUBLE_EQ(duration("1.5h"), 5400);
  EXPECT_DOUBLE_EQ(duration("3d"), 259200);
  EXPECT_DOUBLE_EQ(duration("0.25s"), 0.25);
  EXPECT_DOUBLE_EQ(duration("3650d"), 3650.0 * 86400);
  EXPECT_DOUBLE_EQ(duration("5min"), 300);
  EXPECT_DOUBLE_EQ(duration("5 m"), 300);
  EXPECT_FALSE(parse_duration("5 ").ok());
  EXPECT_FALSE(parse_duration("5m ").ok());
  EXPECT_DOUBLE_EQ(duration("1h30m"), 5400);
  EXPECT_DOUBLE_EQ(duration("1d 2h 3min 4.5sec"), 86400 + 7200 + 180 + 4.5);
}

TEST(ParseDuration, RefusesBadText) {
  for (const char* text :
       {"",      "0",    "0s",    "0.0h",  "-5",  "-5m", "m",   "5M",   "5ms",   "1h30",
        "30m1h", "1h1h", "1h-5m", "1h30x", "1 2", "inf", "nan", "1e9d", "3651d", "5\xC2\xB5s"})
    expect_refused(parse_duration(text).status(), text);
}

TEST(ParsePercent, TakesTheWholeRangeAndNoMore) {
  EXPECT_DOUBLE_EQ(parse_percent("90%").value(), 0.9);
  EXPECT_DOUBLE_EQ(parse_percent("0%").value(), 0);
  EXPECT_DOUBLE_EQ(parse_percent("100%").value(), 1);
  EXPECT_DOUBLE_EQ(parse_percent("0.5%").value(), 0.005);
  EXPECT_DOUBLE_EQ(parse_percent("90 %").value(), 0.9);
  for (const char* text : {"", "%", "90", "100.01%", "300%", "-1%", "90%%", "nan%", "90\xEF\xBC\x85"})
    expect_refused(parse_percent(text).status(), text);
}

TEST(ParseSizeOrShare, TellsSharesFromSizes) {
  const auto share = parse_size_or_share("90%");
  ASSERT_TRUE(share.ok());
  EXPECT_TRUE(share.value().is_share);
  EXPECT_EQ(share.value().of(1000), 900u);
  const auto bytes = parse_size_or_share("72GB");
  ASSERT_TRUE(bytes.ok());
  EXPECT_FALSE(bytes.value().is_share);
  EXPECT_EQ(bytes.value().of(1000), 72'000'000'000u);
  const auto nothing = parse_size_or_share("0");
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing.value().of(1000), 0u);
  for (const char* text : {"300%", "", "most", "-1%", "90%GB", "1.5"})
    expect_refused(parse_size_or_share(text).status(), text);
}

TEST(ParseSizeOrShare, TheWholeIsExact) {
  const std::uint64_t total = (1ull << 60) + 1;
  EXPECT_EQ(parse_size_or_share("100%").value().of(total), total);
  EXPECT_EQ(parse_size_or_share("0%").value().of(total), 0u);
}

TEST(FormatAmount, ShowsFourDigitsAndThePower) {
  EXPECT_EQ(format_amount(0), "0");
  EXPECT_EQ(format_amount(8, "FLOP"), "8 FLOP");
  EXPECT_EQ(format_amount(1500, "FLOP"), "1.5 kFLOP");
  EXPECT_EQ(format_amount(999.9), "999.9");
  EXPECT_EQ(format_amount(1000), "1 k");
  EXPECT_EQ(format_amount(83'331'234), "83.33 M");
  EXPECT_EQ(format_amount(2.259e16), "22.59 P");
  EXPECT_EQ(format_amount(5e21), "5000 E");
}

TEST(FormatBytes, ShowsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(999.7), "1.00 KB");
  EXPECT_EQ(format_bytes(1.5e9), "1.50 GB");
  EXPECT_EQ(format_bytes(9.996e6), "10.0 MB");
  EXPECT_EQ(format_bytes(72e9), "72.0 GB");
  EXPECT_EQ(format_bytes(143.7e9), "144 GB");
  EXPECT_EQ(format_bytes(999.6e6), "1.00 GB");
  EXPECT_EQ(format_bytes(2e12), "2.00 TB");
  EXPECT_EQ(format_bytes(3e15), "3.00 PB");
  EXPECT_EQ(format_bytes(1e21), "1000 EB");
  EXPECT_EQ(format_bytes(-1500), "-1.50 KB");
}

TEST(FormatDuration, ShowsTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0), "0 s");
  EXPECT_EQ(format_duration(42.4), "42 s");
  EXPECT_EQ(format_duration(59.6), "1 m 00 s");
  EXPECT_EQ(format_duration(65), "1 m 05 s");
  EXPECT_EQ(format_duration(3 * 3600 + 7 * 60 + 59), "3 h 07 m");
  EXPECT_EQ(format_duration(2 * 86400 + 3 * 3600), "2 d 03 h");
  EXPECT_EQ(format_duration(-5), "-5 s");
}

TEST(Counted, HasAPluralUnlessItIsOne) {
  EXPECT_EQ(counted(0, "word"), "0 words");
  EXPECT_EQ(counted(1, "wrong word"), "1 wrong word");
  EXPECT_EQ(counted(2, "wrong word"), "2 wrong words");
}

}  // namespace
}  // namespace egt
