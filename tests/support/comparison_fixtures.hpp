#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "judge/version.hpp"
#include "report/compare/comparison.hpp"

/// Results for `compare`, in the format that commands write.
namespace egt::comparison_fixtures {

inline constexpr const char* h100 = "NVIDIA H100";
inline constexpr const char* a100 = "NVIDIA A100";

inline Json result_of(const std::vector<std::string>& devices, const std::vector<Json>& entries,
                      const char* command = "bench") {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    ranks.push_back({{"rank", rank}, {"device", {{"name", devices[rank]}}}});
  return {{"schema", 1},
          {"program_version", program_version()},
          {"command", command},
          {"verdict", "pass"},
          {"reasons", Json::array()},
          {"ranks", ranks},
          {"results", entries}};
}

/// One entry of `bench`; ranks are 0 to devices - 1.
inline Json bench(const std::string& workload, std::int64_t size, const char* mode, int devices, double ms) {
  Json ranks = Json::array();
  for (int rank = 0; rank < devices; ++rank) ranks.push_back(rank);
  const bool cloud = workload == "voxelize";
  return {
      {"test_name", workload + (cloud ? " " : " batch ") + std::to_string(size) + (cloud ? " points" : "")},
      {"workload", workload},
      {"size", size},
      {"mode", mode},
      {"devices", devices},
      {"ranks", ranks},
      {"rank", nullptr},
      {"ms_per_batch", ms},
      {"items", cloud ? "points" : "samples"},
      {"items_per_second", static_cast<double>(size) / ms * 1e3},
      {"spread_percent", 0.5},
      {"power_w", 500.0 * devices},
      {"success", true},
      {"failure", nullptr}};
}

/// The two workloads of the seed's table.
inline std::vector<Json> both(const char* mode, int devices, double multimodal_ms, double voxelize_ms) {
  return {bench("multimodal", 32, mode, devices, multimodal_ms),
          bench("voxelize", 1'000'000, mode, devices, voxelize_ms)};
}

inline std::vector<Json> joined(std::vector<Json> first, const std::vector<Json>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// A part of `burn` on one rank.
inline Json part(const char* name, int rank, Json figures) {
  figures.update({{"test_name", name}, {"rank", rank}, {"success", true}, {"failure", nullptr}});
  return figures;
}

inline ComparedFile file_of(const std::string& label, Json result) {
  return {label + ".json", label, std::move(result), ""};
}

inline Comparison compare(std::vector<ComparedFile> files, ComparisonOptions options = {}) {
  Result<Comparison> comparison = compare_results(std::move(files), std::move(options));
  EXPECT_TRUE(comparison.ok()) << comparison.status().what();
  return comparison.ok() ? comparison.value() : Comparison();
}

/// The five results of the seed, with its milliseconds.
inline std::vector<ComparedFile> seed_files() {
  return {
      file_of("h100_single", result_of({h100}, both("single", 1, .050, .020))),
      file_of("a100_single", result_of({a100}, both("single", 1, .057, .032))),
      file_of("h100_2gpu",
              result_of({h100, h100}, joined(both("p2p", 2, .028, .012), both("collective", 2, .032, .015)))),
      file_of("a100_2gpu",
              result_of({a100, a100}, joined(both("p2p", 2, .033, .019), both("collective", 2, .038, .022)))),
      file_of("hetero", result_of({h100, a100}, both("hetero", 2, .030, .014)))};
}

/// Two results of one test on one device; the second metric is `change` times the first.
inline std::vector<ComparedFile> pair_of(double change) {
  Json second = bench("mlp", 8192, "single", 1, 10);
  second["items_per_second"] = second["items_per_second"].get<double>() * change;
  return {file_of("old", result_of({h100}, {bench("mlp", 8192, "single", 1, 10)})),
          file_of("new", result_of({h100}, {second}))};
}

inline std::string line_with(const std::string& text, const std::string& piece) {
  const std::size_t at = text.find(piece);
  if (at == std::string::npos) return "no line with " + piece;
  const std::size_t start = text.rfind('\n', at) + 1;
  return text.substr(start, text.find('\n', at) - start);
}

}  // namespace egt::comparison_fixtures
