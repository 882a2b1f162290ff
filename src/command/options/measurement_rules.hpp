#pragma once

#include <vector>

#include "command/options/option_table.hpp"

/// Options of the measuring commands and of `compare`. Each option writes to the given struct.
namespace egt {

using Rules = std::vector<OptionRule>;

Rules link_rules(LinksOptions& links);
Rules bench_rules(BenchOptions& bench);
Rules loadtest_rules(LoadTestOptions& loadtest, CommonOptions& common);
Rules compare_rules(ComparisonOptions& comparison);

}  // namespace egt
