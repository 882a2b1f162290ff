#include <sched.h>

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <utility>

#include "command/commands.hpp"
#include "command/run/measurement_run.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "egt/ranks/topology.hpp"
#include "judge/record_schema.hpp"
#include "session/stop_signal.hpp"
#include "workload/links/links_workload.hpp"

namespace egt {
namespace {

std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

/// CPUs that this process may use, in ascending order; empty: unknown.
std::vector<int> own_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

/// Bus ids of the other devices on this rank's node.
Result<std::vector<std::string>> neighbours(Control& control, const std::string& pci_id) {
  EGT_TRY_ASSIGN(const auto places, gather_places(control));
  EGT_TRY_ASSIGN(const auto ids, all_gather(control, pci_id));
  std::vector<std::string> others;
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    if (static_cast<int>(rank) != control.place().rank && places[rank].host_id == control.place().host_id &&
        !ids[rank].empty())
      others.push_back(ids[rank]);
  return others;
}

/// Link properties of every rank's endpoint. Collective.
Result<std::vector<LinkEndpoint>> gather_ends(const DeviceInfo& device, Control& control) {
  const RankPlace& place = control.place();
  LinkEndpoint own;
  own.rank = place.rank;
  own.hostname = place.hostname;
  own.host_id = place.host_id;
  own.machine = machine_id();
  own.is_gpu = device.backend == "cuda";
  own.device_name = device.name;
  own.pci_id = pci_id_text(device.pci_bus_id);
  own.numa_node = device.numa_node;
  own.cpus = own_cpus();
  own.ports = read_network_ports();
  EGT_TRY_ASSIGN(const auto others, neighbours(control, own.pci_id));
  if (own.is_gpu) {
    auto links = read_nvml_links(own.pci_id, others);
    if (links.ok())
      own.links = std::move(links.value());
    else
      own.untold = links.status().what();
  }
  EGT_TRY_ASSIGN(const auto texts, all_gather(control, one_line(to_json(own))));
  std::vector<LinkEndpoint> ends;
  for (const std::string& text : texts) ends.push_back(link_end_from(Json::parse(text)));
  return ends;
}

/// Measures every pair of devices, every device and its host, and all devices together.
class LinksPurpose : public MeasurementRun {
 public:
  Status refine(Options& options, Backend, const RankPlace& place) override {
    EGT_TRY(check_injections(options.run.injections, place.size));
    return check_link_injections(options.run.injections, place.size);
  }

  Status choose(const Options& options, const Platform& platform, Control& control) override {
    options_ = options.links;
    timeout_seconds_ = options.run.watch.collective_timeout_seconds;
    is_root_ = control.place().rank == 0;
    EGT_TRY_ASSIGN(ends_, gather_ends(platform.device->info(), control));
    return {};
  }

  bool make_smaller(RecordQueue& records) override {
    constexpr std::uint64_t least = 1'000'000;
    if (options_.size / 2 < least) return false;
    if (is_root_)
      records.warning(fmt::format("--size {}: does not fit into memory: {} is taken",
                                  format_bytes(options_.size), format_bytes(options_.size / 2)));
    options_.size /= 2;
    return true;
  }

  void begin(RecordQueue& records) override {
    if (is_root_ && ends_.size() == 1)
      records.notice("links: a single rank has no pairs: only the device and its host are measured");
    for (const LinkEndpoint& end : ends_)
      if (is_root_ && !end.untold.empty())
        records.warning(fmt::format("rank {}: its links are not known: {}", end.rank, end.untold));
  }

 protected:
  std::unique_ptr<MeasurementWorkload> make_suite(Environment& environment) override {
    return std::make_unique<LinksWorkload>(environment, options_, ends_, timeout_seconds_,
                                           [] { return StopSignal::received() != 0; });
  }

 private:
  LinksOptions options_;
  double timeout_seconds_ = 0;
  std::vector<LinkEndpoint> ends_;
  bool is_root_ = false;
};

}  // namespace

std::unique_ptr<RunPurpose> make_links() {
  return std::make_unique<LinksPurpose>();
}

}  // namespace egt
