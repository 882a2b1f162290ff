#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"
#include "judge/action.hpp"

/// What a healthy node has, as an --expect file states it: {key: value} by the rows of one table, which
/// parser, checks, writer and `help man` read. Pure functions.
namespace egt {

/// A value that differs from the expected one, or from what any node should have.
struct Deviation {
  std::string key;
  std::string text;       ///< "GPU 3 (..): pcie_width is 8, expected min 16: reseat .."
  bool is_usual = false;  ///< not in the file: a warning
  std::optional<double> expected = {}, actual = {};  ///< if both are numbers
};

/// Adds a key of an --expect file. Returns what is wrong with it and what is allowed; empty: nothing.
std::string add_expectation(Json& expected, const std::string& key, const std::string& text);

/// `inventory`: as nvml_inventory describes it, and of the node {"hostname", "gpus", "gpus_on_bus",
/// "not_shown", "network_ports", "drives"}. `not_shown`: addresses on the PCI bus without a GPU in the
/// driver. Without expectations, only what any node should have is checked.
std::vector<Deviation> check_inventory(const Json& expected, const Json& inventory);

/// Checks a rank's end record. `light_load`: why the power is not judged; empty: it is. `not_run`: {check,
/// reason} of expected values that are not judged or that this command does not measure.
std::vector<Deviation> check_under_load(const Json& expected, const Json& end, const std::string& light_load,
                                        Json& not_run);

/// Of a finding about this key.
std::optional<Action> action_of_expectation(std::string_view key);

/// An --expect file with the values of this inventory. Keys whose GPUs differ are comments. `load` has the
/// expected values under load, by key; null: unknown.
std::string expectations_text(const Json& inventory, const Json& load);

/// All keys with rule, meaning and unit, for help.
std::string expectations_help();

}  // namespace egt
