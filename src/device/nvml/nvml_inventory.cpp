#include "device/nvml/nvml_inventory.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "device/nvml/nvml_library.hpp"
#include "egt/core/json_access.hpp"

namespace egt {
namespace {

/// The value that a function of a device returns; empty if it has none.
template <typename T, typename... Parameters, typename... Arguments>
std::optional<T> answer(nvml::Library::Function<nvml::DeviceHandle, Parameters...> function,
                        nvml::DeviceHandle device, Arguments... arguments) {
  T value{};
  if (function == nullptr || function(device, arguments..., &value) != nvml::success) return std::nullopt;
  return value;
}

Json text_answer(nvml::Library::GetText function, nvml::DeviceHandle device) {
  std::array<char, 97> text{};  // NVML_DEVICE_UUID_V2_BUFFER_SIZE, the longest of these texts
  if (function == nullptr || function(device, text.data(), static_cast<unsigned>(text.size() - 1)) != 0)
    return nullptr;
  return std::string(text.data());
}

Json mode(nvml::Library::Function<nvml::DeviceHandle, unsigned*, unsigned*> function,
          nvml::DeviceHandle device) {
  unsigned current = 0, pending = 0;
  if (function == nullptr || function(device, &current, &pending) != nvml::success) return nullptr;
  return current != 0;
}

Json pci_address(const nvml::Library& library, nvml::DeviceHandle device) {
  const auto pci = answer<nvml::PciInfo>(library.pci_info, device);
  return pci ? Json(fmt::format("{:08x}:{:02x}:{:02x}.0", pci->domain, pci->bus, pci->device)) : Json();
}

Json fabric_state(const nvml::Library& library, nvml::DeviceHandle device) {
  constexpr const char* names[] = {"", "not started", "in progress", "completed"};
  const auto fabric = answer<nvml::FabricInfo>(library.fabric, device);
  if (!fabric || fabric->state == 0 || fabric->state >= std::size(names)) return nullptr;
  return fabric->state == 3 && fabric->status != nvml::success
             ? fmt::format("failed: {}", library.error_text(fabric->status))
             : names[fabric->state];
}

Json process_count(const nvml::Library& library, nvml::DeviceHandle device) {
  unsigned count = 0;
  if (library.processes == nullptr) return nullptr;
  const nvml::Code code = library.processes(device, &count, nullptr);
  return code == nvml::success || code == nvml::insufficient_size ? Json(count) : Json();
}

void add_links(const nvml::Library& library, nvml::DeviceHandle device, Json& gpu) {
  unsigned active = 0, known = 0;
  for (unsigned link = 0; link < nvml::max_links; ++link)
    if (const auto state = answer<unsigned>(library.nvlink_state, device, link)) {
      ++known;
      active += *state != 0;
    }
  gpu["nvlinks"] = known > 0 ? Json(active) : Json();
  gpu["nvlinks_of"] = known > 0 ? Json(known) : Json();
}

Json describe(const nvml::Library& library, nvml::DeviceHandle device, unsigned index) {
  const auto memory = answer<nvml::Memory>(library.memory, device);
  const auto power = answer<unsigned>(library.power_limit, device);
  const auto persistence = answer<unsigned>(library.persistence, device);
  Json gpu = {
      {"index", index},
      {"model", text_answer(library.name, device)},
      {"uuid", text_answer(library.uuid, device)},
      {"serial", text_answer(library.serial, device)},
      {"pci", pci_address(library, device)},
      {"memory_gb", memory ? Json(static_cast<double>(memory->total) * 1e-9) : Json()},
      {"vbios", text_answer(library.vbios, device)},
      {"pcie_generation", or_null(answer<unsigned>(library.pcie_max_generation, device))},
      {"pcie_width", or_null(answer<unsigned>(library.pcie_width, device))},
      {"pcie_max_width", or_null(answer<unsigned>(library.pcie_max_width, device))},
      {"ecc", mode(library.ecc_mode, device)},
      {"mig", mode(library.mig_mode, device)},
      {"persistence", persistence ? Json(*persistence != 0) : Json()},
      {"fabric", fabric_state(library, device)},
      {"processes", process_count(library, device)},
      {"idle_temperature_c", or_null(answer<unsigned>(library.temperature, device, nvml::sensor_gpu))},
      {"power_limit_w", power ? Json(*power * 1e-3) : Json()},
      {"error", nullptr}};
  add_links(library, device, gpu);
  return gpu;
}

}  // namespace

Result<Json> nvml_inventory(const char* file) {
  EGT_TRY_ASSIGN(const auto library, nvml::Library::open(file));
  std::array<char, 97> driver{};
  unsigned count = 0;
  if (library->count == nullptr || library->handle_by_index == nullptr ||
      library->count(&count) != nvml::success)
    return Status(StatusCode::unavailable, fmt::format("{} does not list the GPUs", file));
  if (library->driver_version != nullptr)
    library->driver_version(driver.data(), static_cast<unsigned>(driver.size() - 1));
  Json gpus = Json::array();
  for (unsigned index = 0; index < count; ++index) {
    nvml::DeviceHandle device = nullptr;
    if (const nvml::Code code = library->handle_by_index(index, &device); code == nvml::success)
      gpus.push_back(describe(*library, device, index));
    else
      gpus.push_back({{"index", index}, {"error", library->error_text(code)}});
  }
  return Json{{"driver", driver[0] == '\0' ? Json() : Json(std::string(driver.data()))}, {"gpu", gpus}};
}

}  // namespace egt
