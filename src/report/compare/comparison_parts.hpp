#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/compare/comparison.hpp"

/// The steps of compare_results.
namespace egt {

/// How many times better `value` is than `base`; nothing where that would divide by zero or is not finite.
std::optional<double> times_better(std::optional<double> value, std::optional<double> base, Better better);

/// Of what is there; nothing of nothing.
std::optional<double> geometric_mean(const std::vector<double>& values);

/// The table of `bench`, from the tests of all files.
Scaling scaling_of(const std::vector<ComparedTest>& tests);

/// invalid_argument: a price that fits no file and no device.
Status check_prices(const std::vector<ComparedFile>& files, const std::vector<Price>& prices);

std::vector<Cost> costs_of(const Comparison& comparison);

/// " (the result's first reason)"; empty where it tells none.
std::string first_reason(const Json& result);

/// What to know when reading the figures: results that are not `pass`, other versions, hardware, drivers or
/// options, tests that are in one file only, failed tests.
std::vector<std::string> notes_of(const Comparison& comparison);

/// "1.73x", "+5.0 %" (`sign`), "12.35 k samples/s"; a dash where there is nothing, of a value "not measured".
std::string times_text(std::optional<double> times);
std::string percent_text(std::optional<double> percent, bool sign);
std::string value_text(const ComparedTest& test, const std::optional<double>& value);

/// The table of `bench`, with a title; empty where there is nothing of it.
std::string scaling_text(const Comparison& comparison);

/// "a, b, c and 5 more"
std::string list_text(const std::vector<std::string>& names, std::size_t most = 8);

}  // namespace egt
