#include "device/nvml/nvml_xid.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "egt/core/text.hpp"

namespace egt::nvml {
namespace {

constexpr int max_reads = 4096;  ///< per call: a flood must not block the caller

/// Removes a number and its terminator from the front of `text`; std::nullopt if it starts otherwise.
std::optional<unsigned> take_number(std::string_view& text, int base, std::string_view ends) {
  unsigned value = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{}) return std::nullopt;
  const bool ended = next == end;
  if (!ended && ends.find(*next) == std::string_view::npos) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(next - text.data()) + (ended ? 0 : 1));
  return value;
}

}  // namespace

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  const auto domain = take_number(text, 16, ":");
  const auto bus = domain ? take_number(text, 16, ":") : std::nullopt;
  const auto device = bus ? take_number(text, 16, ".") : std::nullopt;
  if (!device) return std::nullopt;
  return PciAddress{*domain, *bus, *device};
}

std::optional<XidEvent> parse_xid(std::string_view line, const PciAddress& gpu) {
  constexpr std::string_view mark = "NVRM: Xid (", bus_name = "PCI:";
  const std::size_t start = line.find(mark);
  if (start == std::string_view::npos) return std::nullopt;
  line.remove_prefix(start + mark.size());
  if (line.starts_with(bus_name)) line.remove_prefix(bus_name.size());
  const std::size_t close = line.find("): ");
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view address = line.substr(0, std::min(close, line.find(' ')));  // excludes " GPU-I:05"
  if (parse_pci_address(address) != gpu) return std::nullopt;
  line.remove_prefix(close + 3);
  const auto xid = take_number(line, 10, ", ");
  if (!xid) return std::nullopt;
  if (line.starts_with(' ')) line.remove_prefix(1);
  return XidEvent{*xid, 0, std::string(line)};
}

std::string to_text(const PciAddress& address) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", address.domain, address.bus, address.device);
}

std::optional<LogMessage> parse_message(std::string_view line, const PciAddress& gpu,
                                        const std::string& port) {
  line.remove_prefix(std::min(line.find(';') + 1, line.size()));  // "6,1234,98765,-;" of /dev/kmsg
  const auto has = [&](std::string_view text) { return line.find(text) != std::string_view::npos; };
  const std::string address = to_text(gpu);
  const bool names_gpu = has(address.substr(0, address.size() - 2));  // the driver leaves ".0" out at times
  LogMessage message;
  message.text = line;
  if (has(": SXid (PCI:")) {
    message.source = LogMessage::Source::nvswitch;
    message.is_error = has(", Fatal");
    return message;
  }
  if (has("PCIe Bus Error: severity=") && (names_gpu || (!port.empty() && has(port)))) {
    message.source = LogMessage::Source::pcie;
    message.is_error = !has("severity=Correct");  // Corrected, or Correctable of newer kernels
    return message;
  }
  // "NVRM: GPU at PCI:0000:18:00: GPU-.." names the GPU of the Xid that follows.
  if (!has("NVRM: ") || has("NVRM: Xid (") || has("NVRM: GPU at PCI:") || !names_gpu) return std::nullopt;
  const std::string lower = to_lower(line);
  constexpr std::string_view failures[] = {"fail",      "fallen off", "error", "timeout",
                                           "timed out", "lost",       "crash"};
  message.is_error = std::any_of(std::begin(failures), std::end(failures), [&](std::string_view word) {
    return lower.find(word) != std::string::npos;
  });
  return message;
}

Result<KernelLog> KernelLog::open(const std::string& file) {
  Descriptor descriptor(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!descriptor.valid() || lseek(descriptor.get(), 0, SEEK_END) < 0)
    return Status(StatusCode::unavailable, fmt::format("{}: {}", file, std::strerror(errno)), errno);
  return KernelLog(std::move(descriptor));
}

std::vector<std::string> KernelLog::new_lines() {
  std::array<char, 8192> block{};  // max size of a /dev/kmsg record, which is read whole
  std::vector<std::string> lines;
  for (int reads = 0; reads < max_reads; ++reads) {
    const ssize_t size = ::read(descriptor_.get(), block.data(), block.size());
    if (size < 0 && errno == EPIPE) continue;  // records were overwritten before they were read
    if (size <= 0) break;
    part_.append(block.data(), static_cast<std::size_t>(size));
    for (std::size_t end = part_.find('\n'); end != std::string::npos; end = part_.find('\n')) {
      lines.push_back(part_.substr(0, end));
      part_.erase(0, end + 1);
    }
  }
  return lines;
}

Result<XidEvents> XidEvents::open(const Library& library, DeviceHandle device) {
  if (library.event_set_create == nullptr || library.event_set_free == nullptr ||
      library.register_events == nullptr || library.event_set_wait == nullptr)
    return Status(StatusCode::unsupported, "the driver's library has no events");
  EventSet set = nullptr;
  if (const Code code = library.event_set_create(&set); code != success)
    return Status(StatusCode::unsupported, library.error_text(code), code);
  XidEvents events(library, set);
  if (const Code code = library.register_events(device, event_xid, set); code != success)
    return Status(StatusCode::unsupported, library.error_text(code), code);
  return events;
}

XidEvents::XidEvents(XidEvents&& other) noexcept
    : library_(other.library_), set_(std::exchange(other.set_, nullptr)) {}

XidEvents& XidEvents::operator=(XidEvents&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(set_, other.set_);
  return *this;
}

XidEvents::~XidEvents() {
  if (set_ != nullptr) library_->event_set_free(set_);
}

std::vector<unsigned> XidEvents::new_xids() {
  std::vector<unsigned> xids;
  for (int waits = 0; waits < max_reads; ++waits) {
    EventData event{};
    if (library_->event_set_wait(set_, &event, 0) != success) break;
    if (event.type == event_xid) xids.push_back(static_cast<unsigned>(event.data));
  }
  return xids;
}

void XidList::told_by_nvml(unsigned xid, double time) {
  if (!told_by_other(xid, time, Source::nvml, {})) add({xid, time, {}}, Source::nvml);
}

void XidList::told_by_log(XidEvent event) {
  if (!told_by_other(event.xid, event.time, Source::log, event.detail)) add(std::move(event), Source::log);
}

bool XidList::told_by_other(unsigned xid, double time, Source source, const std::string& detail) {
  const Source other = source == Source::nvml ? Source::log : Source::nvml;
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (events_[i].xid != xid || sources_[i] != other || time - events_[i].time > same_seconds) continue;
    sources_[i] = Source::both;
    if (!detail.empty()) events_[i].detail = detail;
    return true;
  }
  return false;
}

void XidList::add(XidEvent event, Source source) {
  if (kept_[event.xid] == max_of_one_kind) return;
  ++kept_[event.xid];
  events_.push_back(std::move(event));
  sources_.push_back(source);
}

}  // namespace egt::nvml
