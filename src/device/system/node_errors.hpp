#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

/// Error counters that the kernel keeps for all users, from /sys.
namespace egt {

/// Errors of the node's memory (EDAC) cannot be separated by rank, so one rank per node counts them for all.
enum class NodeErrors { counted, left_to_another };

/// Errors of all memory controllers (EDAC), since the kernel's driver was loaded.
class NodeMemoryErrors {
 public:
  /// `root`: the directory that contains `sys`.
  explicit NodeMemoryErrors(std::filesystem::path root) : root_(std::move(root)) {}
  std::optional<std::uint64_t> corrected() { return sum("ce_count"); }
  std::optional<std::uint64_t> uncorrected() { return sum("ue_count"); }

 private:
  /// Includes controllers that can no longer be read; std::nullopt if none can be read. A counter below its
  /// last value was reset and has counted from 0 again.
  std::optional<std::uint64_t> sum(const char* file);

  struct Count {
    std::uint64_t last = 0, sum = 0;
  };
  const std::filesystem::path root_;
  std::map<std::filesystem::path, Count> counts_;
};

/// Errors of a PCIe link (AER) since the node was started: those of a device and of the port above it, which
/// are the two ends of the link. std::nullopt: not counted.
struct PcieErrors {
  std::optional<std::uint64_t> corrected, nonfatal, fatal;
};
/// `address`: "0000:18:00.0".
PcieErrors pcie_errors(const std::filesystem::path& root, const std::string& address);
/// Address of the port above a device; empty: unknown.
std::string pcie_port(const std::filesystem::path& root, const std::string& address);

}  // namespace egt
