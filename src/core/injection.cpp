#include "egt/core/injection.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "egt/core/pattern.hpp"
#include "egt/core/text.hpp"

namespace egt {
namespace {

constexpr std::uint64_t highest_chosen_bit = 27;
constexpr std::int64_t max_steps = 1'000'000'000'000;
constexpr std::uint64_t max_words = std::uint64_t{1} << 24, widest_stride = std::uint64_t{1} << 32;
constexpr std::string_view form =
    "KIND:rank=R,step=S[,bit=B][,count=C][,stride=T][,layer=L][,peer=P][,ms=M][,lasting=once|check|always]";
constexpr std::array lasting_names = {"once", "check", "always"};

constexpr bool is_in_order() {
  for (std::size_t i = 0; i < std::size(injection_rows); ++i)
    if (injection_rows[i].kind != static_cast<InjectionKind>(i)) return false;
  return std::size(injection_rows) == static_cast<std::size_t>(InjectionKind::device_error) + 1;
}
static_assert(is_in_order());

constexpr const char* no_comparison = "a single rank has nothing to compare it with; use at least 2 ranks";
constexpr InjectionNeedRow need_rows[] = {
    {needs_states, no_comparison, "a single rank has no replica to compare"},
    {needs_peers, no_comparison, "a single rank has no collectives"},
    {needs_memory, "with --memory 0 there is no memory to hit; fill some", "--memory 0"},
    {needs_mix, "with --load train this part of the load does not run; leave --load out", "--load train"},
    {needs_files, "with --no-io there is no file to hit; leave --no-io out", "--no-io"},
    {needs_coverage, "with --coverage sampled no all-reduce is verified; use full", "--coverage sampled"},
    {needs_extreme, "with --extreme-iterations 0 there is none to hit; use 1 or more",
     "--extreme-iterations 0"},
    {needs_hidden_layers, "a network without hidden layers has none to hit; use 3 --layers or more",
     "no hidden layers"}};

Status wrong(std::string_view text, std::string_view allowed) {
  return Status(StatusCode::invalid_argument, fmt::format("'{}': {}", text, allowed));
}

template <typename T>
bool parse_number(std::string_view text, T least, T greatest, T& number) {
  T parsed{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc() || end != text.data() + text.size() || !(parsed >= least && parsed <= greatest))
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

/// One `key=value` after the kind.
struct Key {
  std::string_view name;
  const char* allowed;  ///< completes the error text "use .."
  unsigned key;         ///< InjectionKey; 0: every kind accepts it
  bool (*parse)(std::string_view value, Injection& injection);
};

constexpr std::array keys = {
    Key{"rank", "a rank of 0 to 1000000", 0,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, 0, 1'000'000, injection.rank);
        }},
    Key{"step", "a step of 0 to 1000000000000", 0,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, std::int64_t{0}, max_steps, injection.step);
        }},
    Key{"bit", "bits of 0 to 31, as 3 or 3+7", key_bit,
        [](std::string_view value, Injection& injection) { return parse_bits(value, injection.mask); }},
    Key{"count", "a number of words, or of times, of 1 to 16777216", key_count,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, std::uint64_t{1}, max_words, injection.count);
        }},
    Key{"stride", "words of 1 to 4294967296", key_stride,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, std::uint64_t{1}, widest_stride, injection.stride);
        }},
    Key{"layer", "a layer of 1 to 64", key_layer,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, 1, 64, injection.layer.emplace());
        }},
    Key{"peer", "a rank of 0 to 1000000", key_peer,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, 0, 1'000'000, injection.peer.emplace());
        }},
    Key{"ms", "milliseconds of 0 to 1000000000", key_ms,
        [](std::string_view value, Injection& injection) {
          return parse_number(value, 0.0, 1e9, injection.ms.emplace());
        }},
    Key{"lasting", "once, check or always", key_lasting,
        [](std::string_view value, Injection& injection) {
          const auto found = std::find(lasting_names.begin(), lasting_names.end(), value);
          if (found == lasting_names.end()) return false;
          injection.lasting = static_cast<Lasting>(found - lasting_names.begin());
          return true;
        }},
};

/// Parses "key=value" into `injection`. `seen` holds the keys so far; none may be repeated.
Status parse_member(std::string_view text, Injection& injection, std::vector<std::string_view>& seen) {
  const std::size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.name == name; });
  if (key == keys.end()) return wrong(name, fmt::format("no such key; use {}", form));
  if (std::find(seen.begin(), seen.end(), name) != seen.end())
    return wrong(name, "given twice; give it once");
  seen.push_back(key->name);
  if (key->key != 0 && (row_of(injection.kind).keys & key->key) == 0)
    return wrong(name, fmt::format("the kind {} has no such key", to_string(injection.kind)));
  if (equals == std::string_view::npos || !key->parse(text.substr(equals + 1), injection))
    return wrong(text, fmt::format("use {}", key->allowed));
  return {};
}

std::vector<int> bits_of(std::uint32_t mask) {
  std::vector<int> bits;
  for (int bit = 0; bit < 32; ++bit)
    if (mask >> bit & 1) bits.push_back(bit);
  return bits;
}

/// A number that follows from the request, so that each injection hits another location.
std::uint64_t chosen(const Injection& injection, std::uint64_t seed, std::uint64_t purpose) {
  std::uint64_t hash = seed;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(injection.kind), static_cast<std::uint64_t>(injection.rank),
        static_cast<std::uint64_t>(injection.step), purpose})
    hash = mix64((hash ^ part) + 0x9E3779B97F4A7C15ull);
  return hash;
}

}  // namespace

const InjectionRow* find_injection_row(std::string_view name) {
  const auto found = std::find_if(std::begin(injection_rows), std::end(injection_rows),
                                  [&](const InjectionRow& row) { return row.name == name; });
  return found == std::end(injection_rows) ? nullptr : found;
}

std::string kinds_with_place(InjectionPlace place) {
  std::vector<std::string_view> names, others;
  for (const InjectionRow& row : injection_rows)
    if ((row.places & place) != 0) (row.changes_data() ? names : others).emplace_back(row.name);
  std::sort(names.begin(), names.end());
  names.insert(names.end(), others.begin(), others.end());
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

const InjectionNeedRow* unmet_need(InjectionKind kind, unsigned missing) {
  const auto found = std::find_if(std::begin(need_rows), std::end(need_rows), [&](const auto& row) {
    return (row_of(kind).needs & missing & row.need) != 0;
  });
  return found == std::end(need_rows) ? nullptr : found;
}

Result<Injection> parse_injection(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const InjectionRow* const row = find_injection_row(kind);
  if (!row) {
    std::vector<std::string> names;
    for (const InjectionRow& one : injection_rows) names.emplace_back(one.name);
    return wrong(kind, fmt::format("no such kind of fault; {}use {}, with KIND one of {}",
                                   suggestion(kind, names), form, fmt::join(names, " ")));
  }
  Injection injection;
  injection.kind = row->kind;
  std::vector<std::string_view> seen;
  if (colon != std::string_view::npos)
    for (const std::string_view member : split(text.substr(colon + 1), ','))
      EGT_TRY(parse_member(member, injection, seen));
  const bool is_amount = injection.kind == InjectionKind::slow || injection.kind == InjectionKind::diskfull ||
                         injection.kind == InjectionKind::temperature;
  if (is_amount && injection.count == 1 && std::find(seen.begin(), seen.end(), "count") != seen.end())
    return wrong("count=1", fmt::format("use 2 or more for {}", kind));
  for (const std::string_view needed : {"rank", "step"})
    if (std::find(seen.begin(), seen.end(), needed) == seen.end())
      return wrong(text, fmt::format("{} is missing; use {}", needed, form));
  return injection;
}

std::string to_text(const Injection& injection) {
  std::string text =
      fmt::format("{}:rank={},step={}", to_string(injection.kind), injection.rank, injection.step);
  if (injection.mask) text += fmt::format(",bit={}", fmt::join(bits_of(*injection.mask), "+"));
  if (injection.count != 1) text += fmt::format(",count={}", injection.count);
  if (injection.stride != 1) text += fmt::format(",stride={}", injection.stride);
  if (injection.layer) text += fmt::format(",layer={}", *injection.layer);
  if (injection.peer) text += fmt::format(",peer={}", *injection.peer);
  if (injection.ms) text += fmt::format(",ms={}", *injection.ms);
  if (injection.lasting) text += fmt::format(",lasting={}", to_string(*injection.lasting));
  return text;
}

const char* to_string(InjectionKind kind) {
  return row_of(kind).name;
}

const char* to_string(Lasting lasting) {
  return lasting_names[static_cast<std::size_t>(lasting)];
}

Json to_json(const Injection& injection) {
  return {{"kind", to_string(injection.kind)},
          {"rank", injection.rank},
          {"step", injection.step},
          {"bits", injection.mask ? Json(bits_of(*injection.mask)) : Json()},
          {"count", injection.count},
          {"stride", injection.stride},
          {"layer", injection.layer ? Json(*injection.layer) : Json()},
          {"peer", injection.peer ? Json(*injection.peer) : Json()},
          {"ms", injection.ms ? Json(*injection.ms) : Json()},
          {"lasting", injection.lasting ? Json(to_string(*injection.lasting)) : Json()}};
}

Flip choose_flip(const Injection& injection, std::uint64_t words, std::uint64_t seed) {
  Flip flip;
  flip.first = chosen(injection, seed, 1) % words;
  flip.count = std::min(injection.count, words / std::gcd(injection.stride, words));
  flip.stride = injection.stride;
  flip.mask = injection.mask.value_or(1u << (chosen(injection, seed, 2) % (highest_chosen_bit + 1)));
  return flip;
}

int choose_layer(const Injection& injection, int layers, std::uint64_t seed) {
  if (injection.layer) return (*injection.layer - 1) % layers;
  return static_cast<int>(chosen(injection, seed, 3) % static_cast<std::uint64_t>(layers));
}

}  // namespace egt
