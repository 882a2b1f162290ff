#include "device/system/host_sensor.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "egt/core/clock.hpp"
#include "egt/core/system_files.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;

/// proc(5): user nice system idle iowait irq softirq steal; user includes guest time.
CpuTicks parse_ticks(std::istringstream& fields) {
  std::array<std::uint64_t, 8> ticks{};
  for (std::uint64_t& tick : ticks) fields >> tick;
  CpuTicks sum;
  for (const std::uint64_t tick : ticks) sum.total += tick;
  sum.busy = sum.total - ticks[3] - ticks[4];
  return sum;
}

/// Ticks of `cpus`, or of all if empty.
std::optional<CpuTicks> cpu_ticks(const fs::path& root, const std::vector<int>& cpus) {
  std::ifstream in(root / "proc/stat");
  std::optional<CpuTicks> sum;
  for (std::string line; std::getline(in, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    int cpu = -1;  // the line "cpu " is the total
    if (line[3] != ' ') fields >> cpu;
    if (cpus.empty() ? cpu != -1 : std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    const CpuTicks one = parse_ticks(fields);
    if (!sum) sum.emplace();
    sum->busy += one.busy;
    sum->total += one.total;
  }
  return sum;
}

/// Percent busy since `before`, which is updated; std::nullopt if no tick has passed.
std::optional<double> busy_percent(std::optional<CpuTicks>& before, const std::optional<CpuTicks>& now) {
  const std::optional<CpuTicks> last = std::exchange(before, now);
  if (!last || !now || now->total <= last->total || now->busy < last->busy) return std::nullopt;
  return 100.0 * static_cast<double>(now->busy - last->busy) / static_cast<double>(now->total - last->total);
}

std::optional<double> larger(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::max(*a, *b);
}

/// The max of `temp*_SUFFIX` over all CPU monitors, in degrees Celsius.
std::optional<double> hwmon_temperature(const fs::path& root, std::string_view suffix) {
  constexpr std::array<std::string_view, 4> cpu_monitors = {"coretemp", "k10temp", "zenpower", "cpu_thermal"};
  std::optional<double> hottest;
  for (const fs::path& monitor : entries(root / "sys/class/hwmon", "hwmon")) {
    const auto name = first_line(monitor / "name");
    if (!name || std::find(cpu_monitors.begin(), cpu_monitors.end(), *name) == cpu_monitors.end()) continue;
    for (const fs::path& file : entries(monitor, "temp"))
      if (file.filename().string().ends_with(suffix)) hottest = larger(hottest, number_in(file));
  }
  if (hottest) *hottest *= 1e-3;
  return hottest;
}

std::optional<double> zone_temperature(const fs::path& root) {
  std::optional<double> hottest;
  for (const fs::path& zone : entries(root / "sys/class/thermal", "thermal_zone")) {
    const auto type = first_line(zone / "type");
    if (type && (*type == "x86_pkg_temp" || type->find("cpu") != std::string::npos))
      hottest = larger(hottest, number_in(zone / "temp"));
  }
  if (hottest) *hottest *= 1e-3;
  return hottest;
}

/// The mean of the current clocks from cpufreq, over `cpus` or all, in MHz.
std::optional<double> cpufreq_clock(const fs::path& root, const std::vector<int>& cpus) {
  double sum = 0;
  int count = 0;
  for (const fs::path& folder : entries(root / "sys/devices/system/cpu", "cpu")) {
    const std::string digits = folder.filename().string().substr(3);
    int cpu = -1;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), cpu).ec != std::errc{}) continue;
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    if (const auto kilohertz = number_in(folder / "cpufreq/scaling_cur_freq")) {
      sum += *kilohertz * 1e-3;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

/// As `cpufreq_clock`, from /proc/cpuinfo.
std::optional<double> cpuinfo_clock(const fs::path& root, const std::vector<int>& cpus) {
  std::ifstream in(root / "proc/cpuinfo");
  double sum = 0;
  int count = 0, cpu = -1;
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream value(line.substr(colon + 1));
    double mhz = 0;
    if (line.starts_with("processor")) value >> cpu;
    if (!line.starts_with("cpu MHz") || !(value >> mhz)) continue;
    if (!cpus.empty() && std::find(cpus.begin(), cpus.end(), cpu) == cpus.end()) continue;
    sum += mhz;
    ++count;
  }
  if (count == 0) return std::nullopt;
  return sum / count;
}

/// The CPU packages' energy counters (RAPL). They wrap, and only root may read them on many systems.
class PackageEnergy {
 public:
  explicit PackageEnergy(const fs::path& root) {
    for (const fs::path& zone : entries(root / "sys/class/powercap", "intel-rapl:")) {
      const auto name = first_line(zone / "name");
      const auto start = number_in(zone / "energy_uj");
      if (name && name->starts_with("package") && start)
        packages_.push_back({zone, number_in(zone / "max_energy_range_uj").value_or(0), *start});
    }
  }

  /// Joules since construction; std::nullopt if a package cannot be read.
  std::optional<double> joules() {
    if (packages_.empty()) return std::nullopt;
    for (Package& package : packages_) {
      const auto now = number_in(package.zone / "energy_uj");
      if (!now) return std::nullopt;
      joules_ += (*now - package.last + (*now < package.last ? package.range : 0)) * 1e-6;
      package.last = *now;
    }
    return joules_;
  }

  /// The long-term limit of all packages together.
  std::optional<double> limit_w() const {
    std::optional<double> sum;
    for (const Package& package : packages_)
      if (const auto microwatts = number_in(package.zone / "constraint_0_power_limit_uw"))
        sum = sum.value_or(0) + *microwatts * 1e-6;
    return sum;
  }

 private:
  struct Package {
    fs::path zone;
    double range;  ///< microjoules at which the counter wraps
    double last;
  };
  std::vector<Package> packages_;
  double joules_ = 0;
};

class HostSensor final : public Sensor {
 public:
  HostSensor(std::vector<int> cpus, fs::path root, NodeErrors errors)
      : cpus_(std::move(cpus)),
        root_(std::move(root)),
        errors_(errors),
        memory_errors_(root_),
        energy_(root_),
        ticks_(cpu_ticks(root_, cpus_)) {}

  SensorLimits limits() override {
    SensorLimits limits;
    limits.power_limit_w = energy_.limit_w();
    limits.shutdown_temperature_c = hwmon_temperature(root_, "_crit");
    return limits;
  }
  Result<SensorReading> read() override;
  Result<SensorCounters> counters() override;

 private:
  std::optional<double> power(std::optional<double> joules);

  const std::vector<int> cpus_;
  const fs::path root_;
  const NodeErrors errors_;
  NodeMemoryErrors memory_errors_;
  PackageEnergy energy_;
  std::optional<CpuTicks> ticks_;
  double joules_before_ = 0;
  Clock::time_point time_before_ = Clock::now();
};

std::optional<double> HostSensor::power(std::optional<double> joules) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - time_before_).count();
  if (!joules || seconds <= 0) return std::nullopt;  // the next reading covers this time, too
  time_before_ = now;
  return (*joules - std::exchange(joules_before_, *joules)) / seconds;
}

Result<SensorReading> HostSensor::read() {
  const auto now = cpu_ticks(root_, cpus_);
  const Result<NodeMemory> memory = node_memory(root_);
  if (!now && !memory.ok()) return Status(StatusCode::unavailable, "/proc has neither CPU time nor memory");
  SensorReading reading;
  reading.gpu_utilization_percent = busy_percent(ticks_, now);
  reading.energy_j = energy_.joules();
  reading.power_w = power(reading.energy_j);
  reading.temperature_c = hwmon_temperature(root_, "_input");
  if (!reading.temperature_c) reading.temperature_c = zone_temperature(root_);
  reading.sm_clock_mhz = cpufreq_clock(root_, cpus_);
  if (!reading.sm_clock_mhz) reading.sm_clock_mhz = cpuinfo_clock(root_, cpus_);
  if (memory.ok()) {
    reading.memory_total_bytes = memory.value().total_bytes;
    reading.memory_used_bytes = memory.value().used_bytes();
  }
  return reading;
}

Result<SensorCounters> HostSensor::counters() {
  SensorCounters counters;
  if (errors_ == NodeErrors::left_to_another) return counters;
  counters.ecc_corrected = memory_errors_.corrected();
  counters.ecc_uncorrected = memory_errors_.uncorrected();
  counters.ecc_from_zero = true;  // counts since the kernel's EDAC driver was loaded
  return counters;
}

}  // namespace

HostLoadSampler::HostLoadSampler(fs::path root) : root_(std::move(root)), before_(cpu_ticks(root_, {})) {}

HostLoad HostLoadSampler::look() {
  HostLoad load;
  load.cpu_percent = busy_percent(before_, cpu_ticks(root_, {}));
  if (const Result<NodeMemory> memory = node_memory(root_); memory.ok() && memory.value().total_bytes > 0)
    load.memory_percent = 100.0 * static_cast<double>(memory.value().used_bytes()) /
                          static_cast<double>(memory.value().total_bytes);
  return load;
}

std::unique_ptr<Sensor> open_host_sensor(std::vector<int> cpus, fs::path root, NodeErrors errors) {
  return std::make_unique<HostSensor>(std::move(cpus), std::move(root), errors);
}

}  // namespace egt
