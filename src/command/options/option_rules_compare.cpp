#include <algorithm>

#include "command/options/option_parsers.hpp"
#include "command/options/option_table.hpp"

namespace egt {
namespace {

constexpr double highest_price = 1e9;

/// The name may hold a '=', the price does not.
bool parse_price(std::string_view text, Options& options) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return false;
  const auto per_hour = parse_number(text.substr(equals + 1), 0, highest_price);
  if (!per_hour || *per_hour <= 0) return false;
  std::vector<Price>& prices = options.compare.comparison.prices;
  const std::string name(text.substr(0, equals));
  if (std::any_of(prices.begin(), prices.end(), [&](const Price& price) { return price.name == name; }))
    return false;
  prices.push_back({name, *per_hour});
  return true;
}

}  // namespace

std::vector<OptionRule> compare_rules() {
  return {
      {"tolerance", of_compare, "SHARE",
       "by how much a figure may be worse than its like in an earlier file (5%)", "a share of 0 to 100 %",
       [](std::string_view text, Options& o) {
         return parse_share(text, 0, o.compare.comparison.tolerance);
       }},
      {.name = "price",
       .commands = of_compare,
       .value = "NAME=X",
       .help = "of one device an hour; NAME: a file's label or a device's, as H200=2.5; several times (none)",
       .allowed = "NAME=X with a price above 0 and up to 1000000000, each NAME once, as H200=2.5",
       .parse = parse_price,
       .repeatable = true},
  };
}

}  // namespace egt
