#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/nvml/nvml_library.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/status.hpp"
#include "egt/device/sensor.hpp"

namespace egt::nvml {

/// A GPU's PCI address in the kernel log's format.
struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0;
  bool operator==(const PciAddress&) const = default;
};

/// Parses "00000000:18:00.0" or "0000:18:00"; std::nullopt for other text.
std::optional<PciAddress> parse_pci_address(std::string_view text);

/// Parses a kernel log line like "NVRM: Xid (PCI:0000:18:00): 79, pid=7, GPU has fallen off the bus." or, for
/// a MIG instance, "NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:01): 94, ..". std::nullopt for other lines and
/// other GPUs. The returned time is 0.
std::optional<XidEvent> parse_xid(std::string_view line, const PciAddress& gpu);

/// "0000:18:00.0", as in the kernel log and in /sys.
std::string to_text(const PciAddress& address);

/// Parses a kernel log line without an Xid: "nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 20034, Fatal, Link 22
/// ..", AER's "nvidia 0000:18:00.0: PCIe Bus Error: severity=Corrected, ..", and messages of the driver that
/// name the GPU, as "NVRM: GPU 0000:18:00.0: RmInitAdapter failed!". std::nullopt for all others. `port`:
/// address of the port above the GPU, whose AER messages concern the same link; empty: unknown.
std::optional<LogMessage> parse_message(std::string_view line, const PciAddress& gpu,
                                        const std::string& port);

/// Kernel log lines written after this was opened.
class KernelLog {
 public:
  /// `file`: /dev/kmsg, or any file to which lines are appended.
  static Result<KernelLog> open(const std::string& file);
  /// The complete lines since the last call. Never blocks.
  std::vector<std::string> new_lines();

 private:
  explicit KernelLog(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
  std::string part_;  ///< the last, incomplete line
};

/// NVML's Xid events of one GPU.
class XidEvents {
 public:
  static Result<XidEvents> open(const Library& library, DeviceHandle device);
  XidEvents(XidEvents&& other) noexcept;
  XidEvents& operator=(XidEvents&& other) noexcept;
  ~XidEvents();

  /// Xids since the last call. Never waits.
  std::vector<unsigned> new_xids();

 private:
  XidEvents(const Library& library, EventSet set) : library_(&library), set_(set) {}

  const Library* library_;
  EventSet set_;
};

/// All Xids of one GPU, from NVML and the kernel log. Both may report the same Xid, or only one of them. For
/// example, NVML has no events of a GPU that fell off the bus.
class XidList {
 public:
  static constexpr std::size_t max_of_one_kind = 16;  ///< later Xids of the same number are dropped
  static constexpr double same_seconds = 10;          ///< reports by both within this time are one event

  void told_by_nvml(unsigned xid, double time);
  void told_by_log(XidEvent event);
  const std::vector<XidEvent>& events() const { return events_; }

 private:
  enum class Source { nvml, log, both };
  bool told_by_other(unsigned xid, double time, Source source, const std::string& detail);
  void add(XidEvent event, Source source);

  std::vector<XidEvent> events_;
  std::vector<Source> sources_;  ///< source of each of `events_`
  std::map<unsigned, std::size_t> kept_;
};

}  // namespace egt::nvml
