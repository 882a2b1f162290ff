#include <fmt/format.h>

#include <cstdio>

#include "command/commands.hpp"
#include "command/options/presets.hpp"
#include "command/platform.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/json_access.hpp"
#include "egt/core/text.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "judge/expectations.hpp"
#include "report/serve/live_server.hpp"

namespace egt {

namespace {

constexpr Precision all_precisions[] = {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                        Precision::bf16, Precision::fp8,  Precision::int8};

/// "    precisions: fp64 fp32\n", with the reasons for unsupported ones.
template <typename Port>
std::string describe_precisions(const Port& port, const std::string& title, bool report_why) {
  std::string supported, refused;
  for (const Precision precision : all_precisions) {
    const Support support = port.supports(precision);
    if (support.yes())
      supported += fmt::format(" {}", to_string(precision));
    else if (report_why)
      refused += fmt::format("    not {}: {}\n", to_string(precision), support.why_not);
  }
  return fmt::format("    {}:{}\n{}", title, supported, refused);
}

/// Convolutional networks need a library that the build may omit.
std::string describe_dnn(Device& device) {
  const auto dnn = open_dnn(device);
  if (!dnn.ok()) return fmt::format("    no convolutional networks: {}\n", dnn.status().what());
  const std::string title = fmt::format("convolutional networks by {}", dnn.value()->library());
  return describe_precisions(*dnn.value(), title, false);
}

std::string describe(Device& device) {
  const DeviceInfo& info = device.info();
  const bool cuda = info.backend == "cuda";
  std::string text =
      cuda ? fmt::format("  GPU {} ({})", info.index, info.name) : fmt::format("  host ({})", info.name);
  if (const auto memory = device.memory(); memory.ok())
    text += fmt::format(": {} total, {} free", format_bytes(memory.value().total_bytes),
                        format_bytes(memory.value().free_bytes));
  else
    text += ": " + memory.status().what();
  text += fmt::format(", {} {}", info.multiprocessors, cuda ? "multiprocessors" : "cores");
  if (!info.compute_capability.empty()) text += ", compute capability " + info.compute_capability;
  if (!info.pci_bus_id.empty()) text += ", PCI " + info.pci_bus_id;
  if (!info.uuid.empty()) text += ", " + info.uuid;
  text += "\n";
  text += describe_precisions(device, "precisions", true) + describe_dnn(device);
  std::string note;
  const auto sensor = open_sensor(info, note);
  if (!sensor) return text + fmt::format("    no telemetry: {}\n", note);
  const SensorLimits limits = sensor->limits();
  text += "    telemetry: yes";
  if (limits.power_limit_w) text += fmt::format(", power limit {:.0f} W", *limits.power_limit_w);
  if (!limits.link.empty()) text += ", " + limits.link;
  if (!limits.serial.empty()) text += ", serial " + limits.serial;
  return text + "\n";
}

/// `usable` returns the failure of the first unusable device.
std::string describe_node(Backend wanted, const std::string& hostname, Status& usable) {
  std::string note, text = hostname + ":\n";
  for (const auto& device : open_all_devices(wanted, note)) {
    text +=
        device.ok() ? describe(*device.value()) : fmt::format("  not usable: {}\n", device.status().what());
    if (usable.ok() && !device.ok())
      usable = Status(StatusCode::unavailable,
                      fmt::format("a device of {} is not usable: {}", hostname, device.status().what()));
  }
  if (!note.empty()) text += fmt::format("  no GPU: {}\n", note);
  if (const Status serves = check_live_server(); !serves.ok())
    text += fmt::format("  no --serve: {}\n", serves.what());
  return text;
}

/// The values under load that presets/expect/ has for this model; null: none.
Json expected_under_load(const std::string& model) {
  for (const Preset& node : expected_nodes())
    if (const auto expected = read_expectations(node.name);
        expected.ok() &&
        to_lower(model).find(to_lower(text_at(expected.value(), "model"))) != std::string::npos)
      return expected.value();
  return nullptr;
}

Status write_expectations(const std::string& path, const std::string& hostname) {
  const Json inventory = read_inventory(hostname);
  const Json& gpus = member(inventory, "gpu");
  if (gpus.empty())
    return {StatusCode::unavailable,
            fmt::format("--write-expect: {} has no GPU: {}", hostname, text_at(inventory, "driver_error"))};
  const std::string model = text_at(gpus.front(), "model");
  const std::string text =
      fmt::format("# {}, {} x {}: extreme_gpu_trainer --expect FILE\n{}", printable(hostname), gpus.size(),
                  model, expectations_text(inventory, expected_under_load(model)));
  EGT_TRY(write_atomically(path, text));
  fmt::print("{}: what {} has, for --expect\n", printable(path), hostname);
  return {};
}

}  // namespace

Result<int> run_devices(const Options& options, MpiSession&, Control& control, Clock::time_point) {
  EGT_TRY(agree(control, check_backend_of_environment(options.common)));
  const RankPlace& place = control.place();
  Status usable;
  EGT_TRY_ASSIGN(
      const auto nodes,
      control.gather(place.local_rank == 0 ? describe_node(options.common.backend, place.hostname, usable)
                                           : ""));
  for (const std::string& node : nodes) fmt::print("{}", node);
  if (const std::string& path = options.common.write_expect; !path.empty())
    EGT_TRY(agree(control, place.rank == 0 ? write_expectations(path, place.hostname) : Status()));
  EGT_TRY(agree(control, usable));
  return 0;
}

}  // namespace egt
