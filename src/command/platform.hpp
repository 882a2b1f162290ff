#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command/options/options.hpp"
#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"
#include "egt/device/sensor.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"
#include "ranks/restartable_communicator.hpp"

namespace egt {

/// The adapters of one rank. Only this module depends on adapters; all other modules use ports.
struct Platform {
  std::unique_ptr<Device> device;
  std::unique_ptr<RestartableCommunicator> communicator;  ///< destroyed before the device
  std::shared_ptr<Sensor> sensor;  ///< null: the device is not monitored, see `sensor_note`
  std::string sensor_note;
};

/// The backend for this rank, with the reason.
struct BackendChoice {
  Backend backend = Backend::host;  ///< cuda or host
  std::string why;                  ///< for display: "no CUDA device answers: .."
};

/// Why the NVIDIA GPUs on the PCI bus do not respond, with their addresses; empty without GPUs. `root`: file
/// system root. `cuda_reason`: why CUDA has no device.
std::string unusable_gpus(const std::filesystem::path& root, const std::string& cuda_reason);

/// "1 of 8 GPUs tested; start with mpirun --quiet -np 8 or scripts/run.sh" if a node's ranks do not use all
/// GPUs; else empty. `visible`: CUDA devices of a rank, 0 on the host backend.
std::string untested_gpus(int visible, const RankPlace& place, const std::filesystem::path& root);
/// "4 ranks share 2 cores on node7" if ranks of the host backend cannot have a core each; empty otherwise.
std::string shared_cores(int cores, const RankPlace& place);
/// Cores of the node or container; a failure: unknown.
Result<int> node_cores();

/// This node as check_inventory needs it. Without a driver, it has no GPU. `root`: file system to read.
Json read_inventory(const std::string& hostname, const std::filesystem::path& root = "/",
                    const char* nvml = "libnvidia-ml.so.1");

/// `unavailable` with --backend cuda if no device responds. Also without --backend host if the node has
/// unusable GPUs, since a node with broken GPUs must not pass a test of its CPU.
Result<BackendChoice> choose_backend(const CommonOptions& options);
/// invalid_argument if EGT_BACKEND applies but is invalid.
Status check_backend_of_environment(const CommonOptions& options);

/// Number of CUDA devices visible to this rank.
Result<int> visible_gpus();

/// Fails if two ranks use the same device, for example due to CUDA_VISIBLE_DEVICES or a scheduler.
/// Collective.
Status refuse_shared_devices(Control& control, const DeviceInfo& device);
/// The precisions that a value of --precision selects on this device. unsupported: the device lacks it.
Result<std::vector<Precision>> choose_precisions(const std::string& wanted, const Device& device);

/// Opens this rank's device, its communicator (collective, with the same backend on all ranks) and its
/// sensor. `on_progress`: see HostDeviceConfig; a GPU does not report it.
Result<std::unique_ptr<Device>> open_device(Backend backend, const CommonOptions& options,
                                            const RankPlace& place, std::function<void()> on_progress = {});
/// Collective. `timeout_seconds`: see the adapters.
Result<std::unique_ptr<Communicator>> open_communicator(Backend backend, MpiSession& mpi, Control& control,
                                                        double timeout_seconds);
/// Never fails: without a sensor, metrics are null and `note` has the reason. Local rank 0 counts node-wide
/// errors.
std::unique_ptr<Sensor> open_sensor(const DeviceInfo& device, std::string& note, int local_rank = 0);

/// The deep-learning library for `device`, which must outlive it. unavailable: built without the library; the
/// message states what to install.
Result<std::unique_ptr<Dnn>> open_dnn(Device& device);

/// All devices of this node that `wanted` allows, the host last. An entry is an error if a device fails, if
/// GPUs on the PCI bus do not respond, or if GPUs are required but missing. `cuda_note`: why there is no GPU.
std::vector<Result<std::unique_ptr<Device>>> open_all_devices(Backend wanted, std::string& cuda_note);

/// All properties besides the options that may affect a result's bits. Ranks with equal texts must produce
/// equal bits.
std::string describe_device_model(const DeviceInfo& device, const SensorLimits& limits);

/// The contract's `system_info` fields of this node. Missing versions are null.
Json describe_system(const MpiSession& mpi, const SensorLimits& limits);

}  // namespace egt
