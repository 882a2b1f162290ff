#include "device/system/node_errors.hpp"

#include <fstream>

#include "egt/core/system_files.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

fs::path pci_device(const fs::path& root, const std::string& address) {
  return root / "sys/bus/pci/devices" / address;
}

/// The number after `name` in a file of AER, which has a line per error: "BadTLP 3".
std::optional<std::uint64_t> total_in(const fs::path& file, const std::string& name) {
  std::ifstream lines(file);
  std::string word;
  for (std::uint64_t count = 0; lines >> word >> count;)
    if (word == name) return count;
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> NodeMemoryErrors::sum(const char* file) {
  bool answers = false;
  for (const fs::path& controller : entries(root_ / "sys/devices/system/edac/mc", "mc"))
    if (const auto errors = number_in<std::uint64_t>(controller / file)) {
      Count& count = counts_[controller / file];
      count.sum += *errors < count.last ? *errors : *errors - count.last;
      count.last = *errors;
      answers = true;
    }
  std::uint64_t sum = 0;
  for (const auto& [counter, count] : counts_)
    if (counter.filename() == file) sum += count.sum;
  return answers ? std::optional(sum) : std::nullopt;
}

std::string pcie_port(const fs::path& root, const std::string& address) {
  std::error_code error;
  const fs::path device = fs::canonical(pci_device(root, address), error);  // in the tree of bridges
  const std::string above = error ? "" : device.parent_path().filename().string();
  return fs::exists(pci_device(root, above) / "class", error) && !above.empty() ? above : "";
}

PcieErrors pcie_errors(const fs::path& root, const std::string& address) {
  PcieErrors errors;
  const auto add = [](std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> count) {
    if (count) sum = sum.value_or(0) + *count;
  };
  for (const std::string& end : {address, pcie_port(root, address)}) {
    if (end.empty()) continue;
    const fs::path device = pci_device(root, end);
    add(errors.corrected, total_in(device / "aer_dev_correctable", "TOTAL_ERR_COR"));
    add(errors.nonfatal, total_in(device / "aer_dev_nonfatal", "TOTAL_ERR_NONFATAL"));
    add(errors.fatal, total_in(device / "aer_dev_fatal", "TOTAL_ERR_FATAL"));
  }
  return errors;
}

}  // namespace egt
