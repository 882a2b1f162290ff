#pragma once

#include <filesystem>
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

/// The adapters of one rank. This room is the only one that names them; all others see ports.
struct Platform {
  std::unique_ptr<Device> device;
  std::unique_ptr<RestartableCommunicator> communicator;  ///< destroyed before the device
  std::shared_ptr<Sensor> sensor;  ///< null: nothing watches the device; `sensor_note` says why
  std::string sensor_note;
};

/// Which backend this rank would take, and why.
struct BackendChoice {
  Backend backend = Backend::host;  ///< cuda or host
  std::string why;                  ///< for people: "no CUDA device answers: .."
};

/// Why the NVIDIA GPUs on the PCI bus of `root` do not answer, with their addresses; empty: there are none.
/// `cuda_reason`: why CUDA has no device.
std::string unusable_gpus(const std::filesystem::path& root, const std::string& cuda_reason);

/// "1 of 8 GPUs tested; start with mpirun -np 8 or scripts/run.sh" if a node's ranks leave GPUs out; else
/// empty. `visible`: devices that CUDA gives a rank, 0 on the host backend.
std::string untested_gpus(int visible, const RankPlace& place, const std::filesystem::path& root);

/// `unavailable` if --backend cuda is given and no device answers, and, unless --backend host is given, if
/// the machine has GPUs that cannot be used: a node with GPUs must not pass by its CPU.
Result<BackendChoice> choose_backend(const CommonOptions& options);
/// invalid_argument: EGT_BACKEND counts, and is none.
Status check_backend_of_environment(const CommonOptions& options);

/// Devices that CUDA gives this rank.
Result<int> visible_gpus();

/// Opens this rank's device, its communicator (collective: every rank must come here with the same backend)
/// and its sensor.
Result<std::unique_ptr<Device>> open_device(Backend backend, const CommonOptions& options,
                                            const RankPlace& place);
/// Collective. `timeout_seconds`: see the adapters.
Result<std::unique_ptr<Communicator>> open_communicator(Backend backend, MpiSession& mpi, Control& control,
                                                        double timeout_seconds);
/// Never fails: without a sensor the figures are null, and the note says why. The errors of a whole node are
/// counted by its first rank.
std::unique_ptr<Sensor> open_sensor(const DeviceInfo& device, std::string& note, int local_rank = 0);

/// The library of deep-learning primitives for this device, which outlives it. unavailable: the program was
/// built without; says what to install.
Result<std::unique_ptr<Dnn>> open_dnn(Device& device);

/// All devices of this node that `wanted` allows, the host last; an error where one does not work, where the
/// GPUs that the PCI bus shows do not answer, or where GPUs are wanted and there is none. `cuda_note`: why
/// there is no GPU.
std::vector<Result<std::unique_ptr<Device>>> open_all_devices(Backend wanted, std::string& cuda_note);

/// Everything that a result's bits may depend on besides the options: two ranks with the same text must give
/// the same bits.
std::string describe_device_model(const DeviceInfo& device, const SensorLimits& limits);

/// The contract's `system_info` fields of this node; versions that are not there are null.
Json describe_system(const MpiSession& mpi, const SensorLimits& limits);

}  // namespace egt
