#include "command/platform.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>

#include "device/host/host_device.hpp"
#include "device/host/host_topology.hpp"
#include "device/host/onednn/host_dnn.hpp"
#include "device/nvml/nvml_inventory.hpp"
#include "device/nvml/nvml_sensor.hpp"
#include "device/system/host_sensor.hpp"
#include "device/system/network_ports.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/system_files.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "judge/version.hpp"
#include "model/mlp_config.hpp"
#include "ranks/mpi/mpi_communicator.hpp"
#if EGT_WITH_CUDA
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/cuda_dnn.hpp"
#include "ranks/nccl/nccl_communicator.hpp"
#endif

namespace egt {

namespace {

#if EGT_WITH_CUDA
Result<int> gpu_count() {
  return cuda_device_count();
}
std::string why_no_gpu() {
  return cuda_unavailable_reason();
}
bool has_cuda_driver() {
  return !cuda_driver_version().empty();
}
Result<std::unique_ptr<Device>> open_gpu(int index) {
  return open_cuda_device(index);
}

Result<std::unique_ptr<Communicator>> open_gpu_communicator(Control& control, double timeout_seconds) {
  const RankPlace& place = control.place();
  std::string id;
  Status made;
  if (place.rank == 0) {
    auto unique_id = make_nccl_unique_id();
    made = unique_id.status();
    if (unique_id.ok()) id = unique_id.value();
  }
  EGT_TRY_ASSIGN(id, control.broadcast(id));
  if (id.empty()) return made.ok() ? Status(StatusCode::unavailable, "NCCL did not start on rank 0") : made;
  return open_nccl_communicator(id, place, timeout_seconds);
}

Result<std::unique_ptr<Dnn>> open_gpu_dnn(Device& device) {
  return open_cuda_dnn(device);
}

void describe_cuda(Json& system) {
  system["cuda_version"] = cuda_runtime_version();
  system["nccl_version"] = nccl_version();
  system["cublas_version"] = cublas_version();
}
#else
Result<int> gpu_count() {
  return 0;
}
std::string why_no_gpu() {
  return EGT_CUDA_REASON;
}
bool has_cuda_driver() {
  return false;
}
Status left_out() {
  return {StatusCode::unavailable, why_no_gpu()};
}
Result<std::unique_ptr<Device>> open_gpu(int) {
  return left_out();
}
Result<std::unique_ptr<Communicator>> open_gpu_communicator(Control&, double) {
  return left_out();
}
Result<std::unique_ptr<Dnn>> open_gpu_dnn(Device&) {
  return left_out();
}
void describe_cuda(Json&) {}
#endif

/// If the launcher assigns one GPU to each rank, this GPU has index 0.
Result<int> device_index(const CommonOptions& options, const RankPlace& place, int gpus) {
  const auto local = static_cast<std::size_t>(place.local_rank);
  if (options.devices.empty()) return gpus == 1 ? 0 : place.local_rank;
  if (local < options.devices.size()) return options.devices[local];
  return Status(StatusCode::unavailable,
                fmt::format("--devices names {}, but {} has {}: start as many ranks as devices",
                            counted(options.devices.size(), "device"), place.hostname,
                            counted(static_cast<std::uint64_t>(place.local_size), "rank")));
}

std::string first_line_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0) {
      const std::size_t value = line.find_first_not_of(" \t:", key.size());
      return value == std::string::npos ? std::string() : line.substr(value);
    }
  return {};
}

/// CUDA stops at the first invalid entry.
bool hides_all_gpus(std::string_view visible_devices) {
  return visible_devices.empty() || visible_devices.starts_with("-1") || visible_devices == "NoDevFiles";
}

/// EGT_BACKEND has the values of --backend, for tests and job scripts.
std::string_view backend_of_environment() {
  const char* const backend = std::getenv("EGT_BACKEND");
  return backend ? backend : "auto";
}
bool is_host_chosen() {
  return backend_of_environment() == "host";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

std::string unusable_gpus(const std::filesystem::path& root, const std::string& cuda_reason) {
  constexpr std::size_t max_named = 8;
  const auto gpus = nvidia_gpus(root);
  // A sandbox may expose the driver's devices but hide the PCI bus.
  for (const char* const sign : {"proc/driver/nvidia/version", "dev/nvidia0"})
    if (gpus.empty() && std::filesystem::exists(root / sign))
      return fmt::format("the NVIDIA driver is loaded (/{}), but no GPU can be used: {}; see dmesg", sign,
                         cuda_reason);
  if (gpus.empty()) return {};
  std::vector<std::string> addresses;
  for (const PciGpu& gpu : gpus)
    if (addresses.size() < max_named)
      addresses.push_back(gpu.driver.empty() || gpu.driver == "nvidia"
                              ? gpu.address
                              : fmt::format("{} (driver {})", gpu.address, gpu.driver));
  if (gpus.size() > max_named) addresses.push_back(fmt::format("{} more", gpus.size() - max_named));
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool is_loaded = std::filesystem::exists(root / "proc/driver/nvidia/version");
  std::string cause = cuda_reason;
  if (EGT_WITH_CUDA == 0)
    cause = fmt::format(
        "the program was built without CUDA ({}); run scripts/setup.sh, then scripts/build.sh", cuda_reason);
  else if (visible && hides_all_gpus(visible))
    cause = fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides them", visible);
  else if (!is_loaded)
    cause = "the NVIDIA driver is not loaded; see dmesg, and try modprobe nvidia";
  else if (!has_cuda_driver())
    cause = "libcuda.so.1 is missing; install it, or start the container with the NVIDIA runtime";
  return fmt::format("the GPUs at {} cannot be used: {}", fmt::join(addresses, ", "), cause);
}

std::string untested_gpus(int visible, const RankPlace& place, const std::filesystem::path& root) {
  const std::size_t there = nvidia_gpus(root).size();
  const auto text = [&](std::size_t count, const std::string& rest) {
    return fmt::format("{} of {} tested on {}; {}", visible == 0 ? 0 : place.local_size,
                       counted(count, "GPU"), place.hostname, rest);
  };
  if (visible == 0) return there > 0 ? text(there, "the host backend tests the CPU") : std::string();
  if (visible > 1 && visible > place.local_size)
    return text(static_cast<std::size_t>(visible),
                fmt::format("start with mpirun --quiet -np {} or scripts/run.sh", visible));
  return {};
}

std::string shared_cores(int cores, const RankPlace& place) {
  if (place.local_size <= cores) return {};
  return fmt::format("{} share {} on {}", counted(static_cast<std::uint64_t>(place.local_size), "rank"),
                     counted(static_cast<std::uint64_t>(cores), "core"), place.hostname);
}

Result<int> node_cores() {
  EGT_TRY_ASSIGN(const HostShare share, find_host_share(1));
  return share.node_cores;
}

Json read_inventory(const std::string& hostname, const std::filesystem::path& root, const char* nvml) {
  auto found = nvml_inventory(nvml);
  Json inventory = found.ok() ? found.value() : Json{{"driver", nullptr}, {"gpu", Json::array()}};
  const Json& gpus = inventory["gpu"];
  const auto is_shown = [&](const PciGpu& one) {  // NVML's domain has eight digits
    return std::any_of(gpus.begin(), gpus.end(),
                       [&](const Json& gpu) { return text_at(gpu, "pci").ends_with(one.address); });
  };
  Json not_shown = Json::array();
  std::size_t drives = 0, on_bus = 0;
  for (const PciGpu& one : nvidia_gpus(root)) {
    ++on_bus;
    if (!is_shown(one)) not_shown.push_back(one.address);
  }
  for (const auto& drive : entries(root / "sys/block", "nvme")) drives += !drive.empty();
  // A container may show some GPUs only, while its PCI bus shows all.
  const char* const container = std::getenv("NVIDIA_VISIBLE_DEVICES");
  const bool is_known = on_bus > 0 && (!container || std::string_view(container) == "all");
  inventory.update({{"hostname", hostname},
                    {"gpus", gpus.size()},
                    {"gpus_on_bus", is_known ? Json(on_bus) : Json()},
                    {"not_shown", is_known ? not_shown : Json::array()},
                    {"network_ports", read_network_ports(root).size()},
                    {"drives", drives},
                    {"driver_error", found.ok() ? Json() : Json(found.status().what())}});
  return inventory;
}

Result<int> visible_gpus() {
  return gpu_count();
}

Status check_backend_of_environment(const CommonOptions& options) {
  const std::string_view backend = backend_of_environment();
  if (options.backend == Backend::host || backend == "auto" || backend == "host") return {};
  return {StatusCode::invalid_argument, fmt::format("EGT_BACKEND={}: auto or host is allowed", backend)};
}

Result<BackendChoice> choose_backend(const CommonOptions& options) {
  if (options.backend == Backend::host) return BackendChoice{Backend::host, "asked for"};
  EGT_TRY(check_backend_of_environment(options));
  if (options.backend == Backend::automatic && is_host_chosen())
    return BackendChoice{Backend::host, "EGT_BACKEND=host"};
  const Result<int> gpus = gpu_count();
  // Falling back to the host would pass without reporting the broken GPU.
  if (!gpus.ok())
    return Status(gpus.status().code(),
                  fmt::format("GPUs cannot be used: {}; --backend host works without", gpus.status().what()));
  if (gpus.value() > 0) return BackendChoice{Backend::cuda, "a CUDA device answers"};
  if (options.backend == Backend::cuda)
    return Status(StatusCode::unavailable,
                  fmt::format("--backend cuda: {}; --backend host works without a GPU", why_no_gpu()));
  if (const std::string unusable = unusable_gpus("/", why_no_gpu()); !unusable.empty())
    return Status(StatusCode::unavailable, unusable + "; --backend host tests the CPU");
  return BackendChoice{Backend::host, why_no_gpu()};
}

Result<std::unique_ptr<Device>> open_device(Backend backend, const CommonOptions& options,
                                            const RankPlace& place, std::function<void()> on_progress) {
  if (backend == Backend::host && !options.devices.empty())
    return Status(StatusCode::invalid_argument,
                  "--devices: the host backend has no devices to choose from; leave it out");
  if (backend == Backend::host)
    return open_host_device({.local_rank = place.local_rank,
                             .local_size = place.local_size,
                             .cores = {},
                             .memory_total_bytes = {},
                             .on_progress = std::move(on_progress)});
  EGT_TRY_ASSIGN(const int gpus, gpu_count());
  EGT_TRY_ASSIGN(const int index, device_index(options, place, gpus));
  if (index >= gpus)
    return Status(StatusCode::unavailable,
                  fmt::format("device {} does not exist: {} has {} for {}", index, place.hostname,
                              counted(static_cast<std::uint64_t>(gpus), "GPU"),
                              counted(static_cast<std::uint64_t>(place.local_size), "rank")));
  return open_gpu(index);
}

Result<std::unique_ptr<Communicator>> open_communicator(Backend backend, MpiSession& mpi, Control& control,
                                                        double timeout_seconds) {
  return backend == Backend::cuda ? open_gpu_communicator(control, timeout_seconds)
                                  : open_mpi_communicator(mpi, timeout_seconds);
}

Result<std::unique_ptr<Dnn>> open_dnn(Device& device) {
  return device.info().backend == "host" ? open_host_dnn(device) : open_gpu_dnn(device);
}

std::unique_ptr<Sensor> open_sensor(const DeviceInfo& device, std::string& note, int local_rank) {
  const NodeErrors errors = local_rank == 0 ? NodeErrors::counted : NodeErrors::left_to_another;
  if (device.backend == "host") return open_host_sensor({}, "/", errors);
  auto sensor = open_nvml_sensor(device.pci_bus_id, "libnvidia-ml.so.1", "/dev/kmsg", errors);
  if (sensor.ok()) return std::move(sensor.value());
  note = sensor.status().what();
  return nullptr;
}

std::vector<Result<std::unique_ptr<Device>>> open_all_devices(Backend wanted, std::string& cuda_note) {
  std::vector<Result<std::unique_ptr<Device>>> devices;
  if (wanted != Backend::host) {
    const Result<int> gpus = gpu_count();
    if (!gpus.ok()) devices.emplace_back(gpus.status());
    if (gpus.ok() && gpus.value() == 0) {
      cuda_note = why_no_gpu();
      const std::string unusable = unusable_gpus("/", cuda_note);
      if (!unusable.empty() && !is_host_chosen())
        devices.emplace_back(Status(StatusCode::unavailable, unusable));
      else if (wanted == Backend::cuda)
        devices.emplace_back(Status(StatusCode::unavailable, "no GPU"));
    }
    for (int index = 0; gpus.ok() && index < gpus.value(); ++index) devices.push_back(open_gpu(index));
  }
  if (wanted != Backend::cuda) devices.push_back(open_host_device({}));
  return devices;
}

std::string describe_device_model(const DeviceInfo& device, const SensorLimits& limits) {
  return fmt::format("{}, {} multiprocessors, driver {}, {}, extreme_gpu_trainer {}", device.name,
                     device.multiprocessors, limits.driver_version.empty() ? "none" : limits.driver_version,
                     device.libraries, program_version());
}

Json describe_system(const MpiSession& mpi, const SensorLimits& limits) {
  utsname kernel{};
  uname(&kernel);
  const auto pages = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)),
             page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  Json system = {{"hostname", mpi.place().hostname},
                 {"cpu_model", text_or_null(first_line_value("/proc/cpuinfo", "model name"))},
                 {"cpu_count", std::thread::hardware_concurrency()},
                 {"memory_total_bytes", pages * page},
                 {"kernel", fmt::format("{} {}", kernel.sysname, kernel.release)},
                 {"driver_version", text_or_null(limits.driver_version)},
                 {"cuda_version", nullptr},
                 {"nccl_version", nullptr},
                 {"cublas_version", nullptr},
                 {"mpi_version", mpi.mpi_version()}};
  describe_cuda(system);
  return system;
}

Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device) {
  // The cycle omits fp8, because fp8 needs sizes that not every network has. The memory-resident GEMMs use
  // fp8 in every epoch anyway.
  constexpr Precision cycle[] = {Precision::bf16, Precision::tf32, Precision::fp16, Precision::fp32,
                                 Precision::fp64};
  if (wanted != "cycle") {
    const Precision one = *parse_precision(wanted);
    const Support support = supports_training(device, one);
    if (!support.yes())
      return Status(StatusCode::unsupported, fmt::format("--precision {}: {}", wanted, support.why_not));
    return std::vector<Precision>{one};
  }
  std::vector<Precision> supported;
  for (const Precision precision : cycle)
    if (device.supports(precision).yes()) supported.push_back(precision);
  return supported;
}

Status refuse_shared_devices(Control& control, const DeviceInfo& device) {
  EGT_TRY_ASSIGN(const auto devices,
                 control.gather(device.uuid.empty() ? "" : control.place().hostname + " " + device.uuid));
  std::set<std::string> seen;
  Status own;
  for (const std::string& one : devices)
    if (!one.empty() && !seen.insert(one).second)
      own = Status(StatusCode::unavailable,
                   fmt::format("two ranks have the same device ({}): start one rank per device", one));
  return agree(control, own);
}

}  // namespace egt
