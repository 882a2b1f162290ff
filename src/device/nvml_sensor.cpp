#include "egt/device/nvml_sensor.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "nvml_library.hpp"

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

class NvmlSensor final : public Sensor {
 public:
  NvmlSensor(std::unique_ptr<nvml::Library> library, nvml::DeviceHandle device, std::string name)
      : library_(std::move(library)), device_(device), name_(std::move(name)) {}

  SensorLimits limits() override;
  Result<SensorReading> read() override;
  Result<SensorCounters> counters() override;

 private:
  /// What was answered since `begin`.
  struct Answers {
    int given = 0;
    bool lost = false;
  };

  /// Calls an NVML function of the device, if the library has it; has it answered?
  template <typename... Parameters, typename... Arguments>
  bool ask(nvml::Library::Function<nvml::DeviceHandle, Parameters...> function, Arguments... arguments) {
    if (function == nullptr) return false;
    const nvml::Code code = function(device_, arguments...);
    answers_.lost = answers_.lost || code == nvml::gpu_is_lost;
    answers_.given += code == nvml::success;
    return code == nvml::success;
  }
  /// The same for functions whose last argument takes a T.
  template <typename T, typename... Parameters, typename... Arguments>
  std::optional<T> get(nvml::Library::Function<nvml::DeviceHandle, Parameters...> function,
                       Arguments... arguments) {
    T value{};
    if (!ask(function, arguments..., &value)) return std::nullopt;
    return value;
  }
  std::optional<double> field(unsigned id);
  std::optional<std::uint64_t> link_errors(unsigned counter);
  std::string link();
  Status verdict() const;

  std::unique_ptr<nvml::Library> library_;
  nvml::DeviceHandle device_;
  std::string name_;
  Answers answers_;
};

std::optional<double> NvmlSensor::field(unsigned id) {
  nvml::FieldValue request{};
  request.field = id;
  if (!ask(library_->field_values, 1, &request)) return std::nullopt;
  return number(request);
}

std::optional<std::uint64_t> NvmlSensor::link_errors(unsigned counter) {
  std::optional<std::uint64_t> sum;
  for (unsigned link = 0; link < nvml::max_links; ++link)
    if (const auto errors = get<unsigned long long>(library_->nvlink_errors, link, counter))
      sum = sum.value_or(0) + *errors;
  return sum;
}

std::string NvmlSensor::link() {
  std::string text;
  const auto generation = get<unsigned>(library_->pcie_generation);
  const auto width = get<unsigned>(library_->pcie_width);
  if (generation && width) text = fmt::format("PCIe gen {} x{}", *generation, *width);
  unsigned active = 0;
  for (unsigned link = 0; link < nvml::max_links; ++link)
    active += get<unsigned>(library_->nvlink_state, link).value_or(0) != 0;
  if (active > 0) text += fmt::format("{}NVLink {} links", text.empty() ? "" : ", ", active);
  return text;
}

Status NvmlSensor::verdict() const {
  if (answers_.lost)
    return {StatusCode::aborted, fmt::format("GPU {} is lost: it does not answer on its bus", name_),
            nvml::gpu_is_lost};
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
  std::array<char, 96> version{};
  if (library_->driver_version != nullptr &&
      library_->driver_version(version.data(), static_cast<unsigned>(version.size() - 1)) == nvml::success)
    limits.driver_version = version.data();
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
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (ask(library_->remapped_rows, &corrected, &uncorrected, &pending, &failed)) {
    counters.remapped_rows = std::uint64_t{corrected} + uncorrected;
    counters.remap_pending = pending != 0;
    counters.remap_failure = failed != 0;
  }
  counters.pcie_replay = get<unsigned>(library_->pcie_replay);
  counters.nvlink_crc = link_errors(nvml::nvlink_crc_flit);
  counters.nvlink_replay = link_errors(nvml::nvlink_replay);
  counters.nvlink_recovery = link_errors(nvml::nvlink_recovery);
  EGT_TRY(verdict());
  return counters;
}

}  // namespace

Result<std::unique_ptr<Sensor>> open_nvml_sensor(const std::string& device, const char* library) {
  EGT_TRY_ASSIGN(auto nvml, nvml::Library::open(library));
  const bool by_uuid = device.starts_with("GPU-") || device.starts_with("MIG-");
  const auto find = by_uuid ? nvml->handle_by_uuid : nvml->handle_by_pci;
  nvml::DeviceHandle handle = nullptr;
  if (find == nullptr)
    return Status(StatusCode::unavailable, "NVML cannot look a GPU up: update the NVIDIA driver");
  if (const nvml::Code code = find(device.c_str(), &handle); code != nvml::success)
    return Status(StatusCode::unavailable,
                  fmt::format("NVML knows no GPU {}: {}", device, nvml->error_text(code)), code);
  return std::unique_ptr<Sensor>(new NvmlSensor(std::move(nvml), handle, device));
}

}  // namespace egt
