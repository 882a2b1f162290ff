#include "device/nvml/nvml_sensor.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "device/nvml/nvml_library.hpp"
#include "device/nvml/nvml_xid.hpp"
#include "egt/core/clock.hpp"

namespace egt {
namespace {

std::optional<double> scaled(std::optional<unsigned long long> value, double factor) {
  if (!value) return std::nullopt;
  return static_cast<double>(*value) * factor;
}

std::optional<double> number(const nvml::FieldValue& field) {
  if (field.code != nvml::success) return std::nullopt;
  switch (field.type) {
    case nvml::type_f64:
      return field.value.f64;
    case nvml::type_u32:
      return field.value.u32;
    case nvml::type_ulong:
      return static_cast<double>(field.value.ulong);
    case nvml::type_u64:
      return static_cast<double>(field.value.u64);
    case nvml::type_i64:
      return static_cast<double>(field.value.i64);
    case nvml::type_i32:
      return field.value.i32;
    case nvml::type_u16:
      return field.value.u16;
    default:
      return std::nullopt;
  }
}

/// Counts are far below 2^53.
std::optional<std::uint64_t> count(const nvml::FieldValue& field) {
  const auto value = number(field);
  return value && *value >= 0 ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
}

/// A time counter in nanoseconds. Only 64-bit types are accepted, see nvml_library.hpp.
std::optional<double> seconds(const nvml::FieldValue& field) {
  const bool wide = field.type == nvml::type_u64 || field.type == nvml::type_ulong;
  const auto nanoseconds = wide ? number(field) : std::nullopt;
  if (!nanoseconds) return std::nullopt;
  return *nanoseconds * 1e-9;
}

/// True if the call is unsupported or not permitted: the device still responds.
bool is_refusal(nvml::Code code) {
  return code == nvml::invalid_argument || code == nvml::not_supported || code == nvml::no_permission ||
         code == nvml::no_data || code == nvml::deprecated;
}

template <typename T>
std::optional<T> first_of(std::optional<T> a, std::optional<T> b) {
  return a ? a : b;
}

void add(std::optional<std::uint64_t>& sum, std::optional<std::uint64_t> part) {
  if (part) sum = sum.value_or(0) + *part;
}

class NvmlSensor final : public Sensor {
 public:
  NvmlSensor(std::unique_ptr<nvml::Library> library, nvml::DeviceHandle device, std::string name,
             const std::string& kernel_log, NodeErrors errors, std::filesystem::path root)
      : library_(std::move(library)),
        device_(device),
        name_(std::move(name)),
        errors_(errors),
        root_(std::move(root)),
        memory_errors_(root_) {
    listen_for_xids(kernel_log);
  }

  SensorLimits limits() override;
  Result<SensorReading> read() override;
  Result<SensorCounters> counters() override;

 private:
  /// Responses of NVML during one call of this object.
  struct Answers {
    int given = 0;
    nvml::Code lost = nvml::success;  ///< or the error of a lost GPU or one that needs a reset
  };

  /// Calls an NVML function of the device if the library has it. Returns whether it succeeded.
  template <typename... Parameters, typename... Arguments>
  bool ask(nvml::Library::Function<nvml::DeviceHandle, Parameters...> function, Arguments... arguments) {
    if (function == nullptr) return false;
    const nvml::Code code = function(device_, arguments...);
    if (code == nvml::gpu_is_lost || code == nvml::reset_required) answers_.lost = code;
    answers_.given += code == nvml::success || is_refusal(code);
    return code == nvml::success;
  }
  /// As `ask`, for functions with a T as output argument.
  template <typename T, typename... Parameters, typename... Arguments>
  std::optional<T> get(nvml::Library::Function<nvml::DeviceHandle, Parameters...> function,
                       Arguments... arguments) {
    T value{};
    if (!ask(function, arguments..., &value)) return std::nullopt;
    return value;
  }
  void fields(std::span<nvml::FieldValue> requests);
  std::optional<double> field(unsigned id);
  ThrottleTimes throttle_times();
  LinkCounters link_counters(unsigned link);
  void read_links(SensorCounters& counters);
  std::string link();
  void listen_for_xids(const std::string& kernel_log);
  std::optional<nvml::PciAddress> pci_address();
  void collect_xids(SensorCounters& counters);
  void read_node(SensorCounters& counters);
  Status verdict() const;

  std::unique_ptr<nvml::Library> library_;
  nvml::DeviceHandle device_;
  std::string name_;
  const NodeErrors errors_;
  const std::filesystem::path root_;
  NodeMemoryErrors memory_errors_;
  Answers answers_;

  std::optional<nvml::XidEvents> xid_events_;
  std::optional<nvml::PciAddress> pci_;
  std::string port_;  ///< address of the port above the GPU; empty: unknown
  std::vector<LogMessage> log_messages_;
  std::optional<nvml::KernelLog> kernel_log_;
  nvml::XidList xid_list_;
  std::vector<std::string> untold_;
};

/// Fields that NVML does not fill in get an error code.
void NvmlSensor::fields(std::span<nvml::FieldValue> requests) {
  for (nvml::FieldValue& request : requests) request.code = nvml::not_supported;
  if (!ask(library_->field_values, static_cast<int>(requests.size()), requests.data()))
    for (nvml::FieldValue& request : requests) request.code = nvml::not_supported;
}

std::optional<double> NvmlSensor::field(unsigned id) {
  nvml::FieldValue request{};
  request.field = id;
  fields({&request, 1});
  return number(request);
}

ThrottleTimes NvmlSensor::throttle_times() {
  std::array<nvml::FieldValue, 6> f{};
  f[0].field = nvml::field_power_cap_time;
  f[1].field = nvml::field_sw_thermal_time;
  f[2].field = nvml::field_hw_thermal_time;
  f[3].field = nvml::field_hw_thermal_time_2025;
  f[4].field = nvml::field_power_brake_time;
  f[5].field = nvml::field_power_brake_time_2025;
  fields(f);
  return {seconds(f[0]), seconds(f[1]), first_of(seconds(f[2]), seconds(f[3])),
          first_of(seconds(f[4]), seconds(f[5]))};
}

/// Falls back to NVML's older calls if the fields are not supported (up to Ampere).
LinkCounters NvmlSensor::link_counters(unsigned link) {
  std::array<nvml::FieldValue, 5> f{};
  f[0].field = nvml::field_nvlink_crc;
  f[1].field = nvml::field_nvlink_replay;
  f[2].field = nvml::field_nvlink_recovery;
  f[3].field = nvml::field_nvlink_recovery_events;
  f[4].field = nvml::field_nvlink_recovery_failed;
  for (nvml::FieldValue& request : f) request.scope = link;
  fields(f);
  const auto old = [&](unsigned counter) -> std::optional<std::uint64_t> {
    return get<unsigned long long>(library_->nvlink_errors, link, counter);
  };
  LinkCounters counters;
  counters.link = link;
  counters.crc = first_of(count(f[0]), old(nvml::nvlink_crc_flit));
  counters.replay = first_of(count(f[1]), old(nvml::nvlink_replay));
  counters.recovery = first_of(first_of(count(f[2]), count(f[3])), old(nvml::nvlink_recovery));
  counters.recovery_failed = count(f[4]);
  return counters;
}

/// Skips links without a state, which the device does not have.
void NvmlSensor::read_links(SensorCounters& counters) {
  for (unsigned link = 0; link < nvml::max_links; ++link) {
    const auto state = get<unsigned>(library_->nvlink_state, link);
    if (!state) continue;
    LinkCounters one = link_counters(link);
    one.up = *state != 0;
    add(counters.nvlink_crc, one.crc);
    add(counters.nvlink_replay, one.replay);
    add(counters.nvlink_recovery, one.recovery);
    counters.nvlinks.push_back(one);
  }
}

std::string NvmlSensor::link() {
  std::string text;
  const auto generation = get<unsigned>(library_->pcie_max_generation);
  const auto width = get<unsigned>(library_->pcie_width);
  if (generation && width) text = fmt::format("PCIe gen {} x{}", *generation, *width);
  unsigned active = 0;
  for (unsigned link = 0; link < nvml::max_links; ++link)
    active += get<unsigned>(library_->nvlink_state, link).value_or(0) != 0;
  if (active > 0) text += fmt::format("{}NVLink {} links", text.empty() ? "" : ", ", active);
  return text;
}

std::optional<nvml::PciAddress> NvmlSensor::pci_address() {
  if (const auto info = get<nvml::PciInfo>(library_->pci_info))
    return nvml::PciAddress{info->domain, info->bus, info->device};
  return nvml::parse_pci_address(name_);
}

void NvmlSensor::listen_for_xids(const std::string& kernel_log) {
  if (auto events = nvml::XidEvents::open(*library_, device_); events.ok())
    xid_events_ = std::move(events.value());
  else
    untold_.push_back(fmt::format("Xid events of NVML: {}", events.status().what()));
  pci_ = pci_address();
  if (pci_) port_ = pcie_port(root_, nvml::to_text(*pci_));
  if (!pci_) {
    untold_.push_back("Xid lines of the kernel log: the GPU's PCI bus id is not known");
  } else if (auto log = nvml::KernelLog::open(kernel_log); log.ok()) {
    kernel_log_ = std::move(log.value());
  } else {
    untold_.push_back(fmt::format("Xid lines of the kernel log: {}", log.status().what()));
  }
}

void NvmlSensor::collect_xids(SensorCounters& counters) {
  const double now = unix_now();
  if (xid_events_)
    for (const unsigned xid : xid_events_->new_xids()) xid_list_.told_by_nvml(xid, now);
  const std::vector<std::string> lines = kernel_log_ ? kernel_log_->new_lines() : std::vector<std::string>();
  for (const std::string& line : lines) {
    if (auto event = nvml::parse_xid(line, *pci_)) {
      event->time = now;
      xid_list_.told_by_log(std::move(*event));
      continue;
    }
    auto message = nvml::parse_message(line, *pci_, port_);
    const bool is_of_others =
        message && message->source == LogMessage::Source::nvswitch && errors_ == NodeErrors::left_to_another;
    if (!message || is_of_others) continue;
    const bool is_known = std::any_of(log_messages_.begin(), log_messages_.end(), [&](const LogMessage& one) {
      return one.source == message->source && one.is_error == message->is_error;
    });
    if (!is_known) log_messages_.push_back(std::move(*message));
  }
  counters.log_messages = log_messages_;
  counters.xids_told = xid_events_ || kernel_log_;
  counters.xids = xid_list_.events();
}

void NvmlSensor::read_node(SensorCounters& counters) {
  if (pci_) {
    const PcieErrors link = pcie_errors(root_, nvml::to_text(*pci_));
    counters.pcie_corrected = link.corrected;
    counters.pcie_nonfatal = link.nonfatal;
    counters.pcie_fatal = link.fatal;
  }
  if (errors_ == NodeErrors::left_to_another) return;
  counters.host_ecc_corrected = memory_errors_.corrected();
  counters.host_ecc_uncorrected = memory_errors_.uncorrected();
}

Status NvmlSensor::verdict() const {
  if (answers_.lost == nvml::gpu_is_lost)
    return {StatusCode::aborted, fmt::format("GPU {} is lost: it does not answer on its bus", name_),
            answers_.lost};
  if (answers_.lost != nvml::success)
    return {StatusCode::aborted, fmt::format("GPU {} has stopped working: it needs a reset", name_),
            answers_.lost};
  if (answers_.given == 0)
    return {StatusCode::unavailable, fmt::format("NVML answers nothing about GPU {}", name_)};
  return {};
}

SensorLimits NvmlSensor::limits() {
  SensorLimits limits;
  limits.power_limit_w = scaled(get<unsigned>(library_->power_limit), 1e-3);
  limits.slowdown_temperature_c = get<unsigned>(library_->temperature_threshold, nvml::threshold_slowdown);
  limits.shutdown_temperature_c = get<unsigned>(library_->temperature_threshold, nvml::threshold_shutdown);
  limits.link = link();
  std::array<char, 31> serial{};  // NVML_DEVICE_SERIAL_BUFFER_SIZE, and a zero
  if (ask(library_->serial, serial.data(), static_cast<unsigned>(serial.size() - 1)))
    limits.serial = serial.data();
  std::array<char, 96> version{};
  if (library_->driver_version != nullptr &&
      library_->driver_version(version.data(), static_cast<unsigned>(version.size() - 1)) == nvml::success)
    limits.driver_version = version.data();
  limits.untold = untold_;
  return limits;
}

Result<SensorReading> NvmlSensor::read() {
  answers_ = {};
  SensorReading reading;
  if (const auto utilization = get<nvml::Utilization>(library_->utilization))
    reading.gpu_utilization_percent = utilization->gpu;
  reading.power_w = field(nvml::field_power_instant);
  if (reading.power_w)
    *reading.power_w *= 1e-3;
  else
    reading.power_w = scaled(get<unsigned>(library_->power), 1e-3);
  reading.energy_j = scaled(get<unsigned long long>(library_->energy), 1e-3);
  reading.temperature_c = get<unsigned>(library_->temperature, nvml::sensor_gpu);
  reading.memory_temperature_c = field(nvml::field_memory_temperature);
  reading.sm_clock_mhz = get<unsigned>(library_->clock, nvml::clock_sm);
  reading.memory_clock_mhz = get<unsigned>(library_->clock, nvml::clock_memory);
  reading.fan_percent = get<unsigned>(library_->fan);
  if (const auto memory = get<nvml::Memory>(library_->memory)) {
    reading.memory_used_bytes = memory->used;
    reading.memory_total_bytes = memory->total;
  }
  reading.event_reasons = get<unsigned long long>(library_->event_reasons);
  reading.throttle = throttle_times();
  EGT_TRY(verdict());
  return reading;
}

Result<SensorCounters> NvmlSensor::counters() {
  answers_ = {};
  SensorCounters counters;
  counters.ecc_corrected =
      get<unsigned long long>(library_->ecc_errors, nvml::ecc_corrected, nvml::ecc_volatile);
  counters.ecc_uncorrected =
      get<unsigned long long>(library_->ecc_errors, nvml::ecc_uncorrected, nvml::ecc_volatile);
  for (unsigned place = 0; place < std::size(ecc_places); ++place)
    counters.ecc_at[place] = {
        get<unsigned long long>(library_->ecc_errors_at, nvml::ecc_corrected, nvml::ecc_volatile, place),
        get<unsigned long long>(library_->ecc_errors_at, nvml::ecc_uncorrected, nvml::ecc_volatile, place)};
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (ask(library_->remapped_rows, &corrected, &uncorrected, &pending, &failed)) {
    counters.remapped_rows = std::uint64_t{corrected} + uncorrected;
    counters.remapped_rows_uncorrected = uncorrected;
    counters.remap_pending = pending != 0;
    counters.remap_failure = failed != 0;
  }
  if (const auto histogram = get<nvml::RowRemapperHistogram>(library_->remap_histogram))
    std::copy(std::begin(histogram->banks), std::end(histogram->banks), counters.remap_availability);
  counters.pcie_replay = get<unsigned>(library_->pcie_replay);
  counters.pcie = {get<unsigned>(library_->pcie_generation), get<unsigned>(library_->pcie_width),
                   get<unsigned>(library_->pcie_max_generation), get<unsigned>(library_->pcie_max_width)};
  read_links(counters);
  read_node(counters);
  const Status status = verdict();
  if (status.code() == StatusCode::unavailable) return status;
  if (!status.ok()) {
    counters = {};
    counters.lost = status.what();
  }
  collect_xids(counters);
  return counters;
}

}  // namespace

Result<std::unique_ptr<Sensor>> open_nvml_sensor(const std::string& device, const char* library,
                                                 const std::string& kernel_log, NodeErrors errors,
                                                 std::filesystem::path root) {
  EGT_TRY_ASSIGN(auto nvml, nvml::Library::open(library));
  const bool by_uuid = device.starts_with("GPU-") || device.starts_with("MIG-");
  const auto find = by_uuid ? nvml->handle_by_uuid : nvml->handle_by_pci;
  nvml::DeviceHandle handle = nullptr;
  if (find == nullptr)
    return Status(StatusCode::unavailable, "NVML cannot look a GPU up: update the NVIDIA driver");
  if (const nvml::Code code = find(device.c_str(), &handle); code != nvml::success)
    return Status(StatusCode::unavailable,
                  fmt::format("NVML knows no GPU {}: {}", device, nvml->error_text(code)), code);
  return std::unique_ptr<Sensor>(
      new NvmlSensor(std::move(nvml), handle, device, kernel_log, errors, std::move(root)));
}

}  // namespace egt
