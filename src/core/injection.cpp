#include "egt/core/injection.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "egt/core/pattern.hpp"

namespace egt {
namespace {

constexpr std::array names = {"weight",     "gradient",       "activation",  "gemm",     "extreme",
                              "collective", "optimizer",      "memory",      "file-bit", "file-stale",
                              "file-torn",  "file-misplaced", "file-lost",   "slow",     "hang",
                              "kill",       "stop",           "temperature", "xid",      "ecc",
                              "diskfull",   "memory-pressure"};
constexpr std::uint64_t highest_chosen_bit = 27;
constexpr std::int64_t most = 1'000'000'000'000;

Status wrong(std::string_view text, std::string_view allowed) {
  return Status(StatusCode::invalid_argument, fmt::format("{}: {}", text, allowed));
}

template <typename T>
bool parse_number(std::string_view text, T least, T greatest, T& number) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size() || parsed < least || parsed > greatest)
    return false;
  number = parsed;
  return true;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// "3", or several: "3+7+31".
bool parse_bits(std::string_view text, std::optional<std::uint32_t>& mask) {
  std::uint32_t bits = 0;
  for (const std::string_view one : split(text, '+')) {
    int bit = 0;
    if (!parse_number(one, 0, 31, bit)) return false;
    bits |= 1u << bit;
  }
  mask = bits;
  return true;
}

struct Seen {
  bool rank = false, step = false;
};

bool parse_member(std::string_view key, std::string_view value, Injection& injection, Seen& seen) {
  if (key == "rank") return seen.rank = parse_number(value, 0, 1'000'000, injection.rank);
  if (key == "step") return seen.step = parse_number(value, std::int64_t{0}, most, injection.step);
  if (key == "bit") return parse_bits(value, injection.mask);
  if (key == "count") return parse_number(value, std::uint64_t{1}, std::uint64_t{1} << 32, injection.count);
  if (key == "stride") return parse_number(value, std::uint64_t{1}, std::uint64_t{1} << 40, injection.stride);
  if (key == "layer") return parse_number(value, 1, 64, injection.layer.emplace());
  if (key == "ms") return parse_number(value, 0.0, 1e9, injection.ms.emplace());
  return false;
}

/// A number that follows from what is asked for, so that each injection hits another place.
std::uint64_t chosen(const Injection& injection, std::uint64_t seed, std::uint64_t purpose) {
  std::uint64_t hash = seed;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(injection.kind), static_cast<std::uint64_t>(injection.rank),
        static_cast<std::uint64_t>(injection.step), purpose})
    hash = mix64((hash ^ part) + 0x9E3779B97F4A7C15ull);
  return hash;
}

}  // namespace

Result<Injection> parse_injection(std::string_view text) {
  constexpr std::string_view form = "use KIND:rank=R,step=S[,bit=B][,count=C][,stride=T][,layer=L][,ms=M]";
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const auto found = std::find(names.begin(), names.end(), kind);
  if (found == names.end())
    return wrong(kind,
                 fmt::format("no such kind of fault; {}, with KIND one of {}", form, fmt::join(names, " ")));
  if (colon == std::string_view::npos) return wrong(text, form);
  Injection injection;
  injection.kind = static_cast<InjectionKind>(found - names.begin());
  Seen seen;
  for (const std::string_view member : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = member.find('=');
    if (equals == std::string_view::npos ||
        !parse_member(member.substr(0, equals), member.substr(equals + 1), injection, seen))
      return wrong(member, form);
  }
  if (!seen.rank || !seen.step) return wrong(text, fmt::format("rank and step are needed; {}", form));
  return injection;
}

bool changes_data(InjectionKind kind) {
  return kind <= InjectionKind::file_lost;
}

const char* to_string(InjectionKind kind) {
  return names[static_cast<std::size_t>(kind)];
}

Json to_json(const Injection& injection) {
  Json bits;
  if (injection.mask) {
    bits = Json::array();
    for (int bit = 0; bit < 32; ++bit)
      if (*injection.mask >> bit & 1) bits.push_back(bit);
  }
  return {{"kind", to_string(injection.kind)},
          {"rank", injection.rank},
          {"step", injection.step},
          {"bits", bits},
          {"count", injection.count},
          {"stride", injection.stride},
          {"layer", injection.layer ? Json(*injection.layer) : Json()},
          {"ms", injection.ms ? Json(*injection.ms) : Json()}};
}

Flip choose_flip(const Injection& injection, std::uint64_t words, std::uint64_t seed) {
  Flip flip;
  flip.first = chosen(injection, seed, 1) % words;
  flip.count = injection.count;
  flip.stride = injection.stride;
  flip.mask = injection.mask.value_or(1u << (chosen(injection, seed, 2) % (highest_chosen_bit + 1)));
  return flip;
}

int choose_layer(const Injection& injection, int layers, std::uint64_t seed) {
  if (injection.layer) return (*injection.layer - 1) % layers;
  return static_cast<int>(chosen(injection, seed, 3) % static_cast<std::uint64_t>(layers));
}

}  // namespace egt
