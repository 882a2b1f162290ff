#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "egt/core/record.hpp"

/// What `compare` takes from one result: of every test the figures that say how well it went. Pure.
namespace egt {

enum class Better { higher, lower };
/// How the figures of a test's ranks become one.
enum class OverRanks { sum, median };
enum class NameMatch { whole, ending };

struct KnownFigure {
  std::string_view name;  ///< of the entry's field: a number, or an object with its "p50" or "median"
  NameMatch match;
  std::string_view unit;
  Better better;
  OverRanks over_ranks;
};

/// How fast a test did its work. The first of these that an entry has speaks for it, alone: the others would
/// say the same in other units.
std::span<const KnownFigure> work_figures();
/// Those of a test that has none of the above: each speaks for itself, by the first row that its name fits.
std::span<const KnownFigure> part_figures();

/// On what a test ran.
struct Configuration {
  std::string mode;  ///< "single", "p2p", ..; empty: none told
  std::int64_t devices = 1;
  std::vector<std::string> models;  ///< one a device, sorted

  bool operator==(const Configuration&) const = default;
  /// Fewest devices first, then "single", "p2p", "collective", "hetero", others.
  bool operator<(const Configuration& other) const;
};
/// "2x NVIDIA H200 (p2p)", "1x NVIDIA H200" for the mode "single" or none.
std::string to_text(const Configuration& configuration);

/// One figure of one test in one configuration.
struct TestFigure {
  std::string test;
  std::string figure;  ///< its field's name; empty: the test has no known figure, only `success`
  std::string unit;
  Better better = Better::higher;
  Configuration configuration;
  std::optional<double> value;           ///< 0 or above; nothing: not measured, or not on every rank
  std::optional<double> spread_percent;  ///< the largest of the ranks
  std::optional<double> power_w;         ///< of all its devices
  bool success = true;                   ///< on every rank
  std::string failure;                   ///< the first rank's; empty: none told
  std::string workload;                  ///< of `bench` only, as are the next two
  std::optional<double> size;
  std::optional<double> ms_per_batch;
};

/// Entries of equal `test_name`: those that name `devices` are of that configuration, and several of one are
/// repeats (each device alone, say), of which the mean is taken; those of one `rank` each are parts of one
/// whole, put together as the tables say; others are of the ranks
/// that they name, or of all the file's. Tests come in the file's order,
/// each test's configurations in theirs.
std::vector<TestFigure> figures_of(const Json& result);

/// Of all ranks, sorted; empty where the result names none.
std::vector<std::string> device_models(const Json& result);

}  // namespace egt
