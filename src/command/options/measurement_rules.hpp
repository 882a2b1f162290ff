#pragma once

#include <vector>

#include "command/options/option_table.hpp"

/// The options of the commands that measure, and of `compare`; each writes its value where it is told.
namespace egt {

using Rules = std::vector<OptionRule>;

Rules link_rules(LinksOptions& links);
Rules bench_rules(BenchOptions& bench);
Rules loadtest_rules(LoadTestOptions& loadtest, CommonOptions& common);
Rules compare_rules(ComparisonOptions& comparison);

}  // namespace egt
