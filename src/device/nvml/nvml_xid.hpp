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

/// Where a GPU sits, as the kernel log names it.
struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0;
  bool operator==(const PciAddress&) const = default;
};

/// Of "00000000:18:00.0" or "0000:18:00"; none where it is something else.
std::optional<PciAddress> parse_pci_address(std::string_view text);

/// Of a line of the kernel log like "NVRM: Xid (PCI:0000:18:00): 79, pid=7, GPU has fallen off the bus.";
/// or, of an instance of a MIG GPU, "NVRM: Xid (PCI:0000:18:00 GPU-I:05 GPU-CI:01): 94, ..". None for other
/// lines and other GPUs. Its time is 0.
std::optional<XidEvent> parse_xid(std::string_view line, const PciAddress& gpu);

/// What the kernel writes to its log after this was opened.
class KernelLog {
 public:
  /// `file`: /dev/kmsg, or any file that grows by lines.
  static Result<KernelLog> open(const std::string& file);
  /// The lines since the last call, as far as they are whole. Never blocks.
  std::vector<std::string> new_lines();

 private:
  explicit KernelLog(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
  std::string part_;  ///< of a line that is not whole
};

/// NVML's Xid events of one GPU.
class XidEvents {
 public:
  static Result<XidEvents> open(const Library& library, DeviceHandle device);
  XidEvents(XidEvents&& other) noexcept;
  XidEvents& operator=(XidEvents&& other) noexcept;
  ~XidEvents();

  /// Those since the last call. Never waits.
  std::vector<unsigned> new_xids();

 private:
  XidEvents(const Library& library, EventSet set) : library_(&library), set_(set) {}

  const Library* library_;
  EventSet set_;
};

/// All Xids of one GPU, by NVML and by the kernel log: each may report the same one, or be the only one to
/// report it (a GPU that fell off the bus has no more events).
class XidList {
 public:
  static constexpr std::size_t most_of_one_kind = 16;  ///< of later ones with the same number nothing is kept
  static constexpr double same_seconds = 10;           ///< what both report within this time is one event

  void told_by_nvml(unsigned xid, double time);
  void told_by_log(XidEvent event);
  const std::vector<XidEvent>& events() const { return events_; }

 private:
  enum class Source { nvml, log, both };
  bool told_by_other(unsigned xid, double time, Source source, const std::string& detail);
  void add(XidEvent event, Source source);

  std::vector<XidEvent> events_;
  std::vector<Source> sources_;  ///< of each of `events_`
  std::map<unsigned, std::size_t> kept_;
};

}  // namespace egt::nvml
