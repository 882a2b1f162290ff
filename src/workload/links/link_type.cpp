#include "workload/links/link_type.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "egt/core/units.hpp"

namespace egt {
namespace {

/// GB/s per direction and link, by generation. NVIDIA's data sheets give both directions of all links
/// together. P100: 160 GB/s of 4 links, V100: 300 of 6, A100: 600 of 12, H100 and H200: 900 of 18, B200: 1800
/// of 18.
constexpr std::array nvlink_gigabytes = {0.0, 20.0, 25.0, 25.0, 25.0, 50.0};

/// GB/s per direction and lane: 2.5 and 5 GT/s with 8b/10b encoding; 8, 16 and 32 GT/s with 128b/130b; 64
/// GT/s with 242 of 256 bytes (PCI Express Base Specification 6.0).
constexpr std::array pcie_lane_gigabytes = {0.0,
                                            2.5 * 8 / 10 / 8,
                                            5.0 * 8 / 10 / 8,
                                            8.0 * 128 / 130 / 8,
                                            16.0 * 128 / 130 / 8,
                                            32.0 * 128 / 130 / 8,
                                            64.0 * 242 / 256 / 8};

template <std::size_t N>
std::optional<double> rate_of(const std::array<double, N>& gigabytes, int generation) {
  if (generation < 1 || generation >= static_cast<int>(N)) return std::nullopt;
  return gigabytes[static_cast<std::size_t>(generation)] * 1e9;
}

/// NVLinks of one end with the same kind of remote end.
struct Bundle {
  int count = 0;
  int generation = 0;  ///< min over its links; 0: one is unknown
};

template <typename Which>
Bundle bundle(const LinkEndpoint& end, const Which& which) {
  Bundle links;
  for (const NvLink& link : end.links.nvlinks) {
    if (!which(link)) continue;
    links.generation = links.count == 0 ? link.generation : std::min(links.generation, link.generation);
    ++links.count;
  }
  return links;
}

Bundle lesser(const Bundle& a, const Bundle& b) {
  return {std::min(a.count, b.count), std::min(a.generation, b.generation)};
}

LinkType nvlink_type(const Bundle& links, bool through_switch) {
  const auto rate = nvlink_rate(links.generation);
  return {
      .kind = LinkKind::nvlink,
      .generation = links.generation,
      .width = links.count,
      .line_rate_bytes_per_second = rate ? std::optional(*rate * links.count) : std::nullopt,
      .text = fmt::format("NVLink {}x{}{}", links.generation > 0 ? fmt::format("{} ", links.generation) : "",
                          links.count, through_switch ? " through NVSwitch" : "")};
}

/// Whether the driver reports NVLink between these two devices; std::nullopt if it does not know.
std::optional<bool> told_nvlink(const LinkEndpoint& a, const LinkEndpoint& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (const auto reported = one->links.nvlink_to.find(other->pci_id);
        reported != one->links.nvlink_to.end())
      return reported->second;
  return std::nullopt;
}

std::optional<LinkType> nvlink_between(const LinkEndpoint& a, const LinkEndpoint& b) {
  const auto leads_to = [](const LinkEndpoint& other) {
    return [&other](const NvLink& link) {
      return link.end == NvLink::End::gpu && !other.pci_id.empty() && link.remote_pci == other.pci_id;
    };
  };
  const auto to_switch = [](const NvLink& link) { return link.end == NvLink::End::nvswitch; };
  const auto any = [](const NvLink&) { return true; };
  const auto reported = told_nvlink(a, b);
  if (reported == false) return std::nullopt;
  const Bundle direct = lesser(bundle(a, leads_to(b)), bundle(b, leads_to(a)));
  if (direct.count > 0) return nvlink_type(direct, false);
  const Bundle switched = lesser(bundle(a, to_switch), bundle(b, to_switch));
  if (switched.count > 0) return nvlink_type(switched, true);
  const Bundle all = lesser(bundle(a, any), bundle(b, any));
  if (reported == true && all.count > 0) return nvlink_type(all, false);
  return std::nullopt;
}

/// The max link of an end, because the current link state drops while the device is idle.
std::optional<std::pair<int, int>> pcie_of(const LinkEndpoint& end) {
  const PcieLink& pcie = end.links.pcie;
  if (!pcie.max_generation || !pcie.max_width) return std::nullopt;
  return std::pair(static_cast<int>(*pcie.max_generation), static_cast<int>(*pcie.max_width));
}

LinkType pcie_between(const LinkEndpoint& a, const LinkEndpoint& b) {
  const auto pcie_a = pcie_of(a), pcie_b = pcie_of(b);
  if (!pcie_a || !pcie_b) return {.text = "not known"};
  const int generation = std::min(pcie_a->first, pcie_b->first),
            width = std::min(pcie_a->second, pcie_b->second);
  return {.kind = LinkKind::pcie,
          .generation = generation,
          .width = width,
          .line_rate_bytes_per_second = pcie_rate(generation, width),
          .text = fmt::format("PCIe {} x{}", generation, width)};
}

/// Bits per second of the ports that may carry the traffic, if all have the same rate.
std::optional<double> port_rate(const LinkEndpoint& end) {
  const bool fabric =
      std::any_of(end.ports.begin(), end.ports.end(), [](auto& port) { return port.infiniband; });
  std::optional<double> rate;
  for (const NetworkPort& port : end.ports) {
    if (port.infiniband != fabric) continue;
    if (rate && *rate != port.bits_per_second) return std::nullopt;
    rate = port.bits_per_second;
  }
  return rate;
}

LinkType network_between(const LinkEndpoint& a, const LinkEndpoint& b) {
  if (!a.machine.empty() && a.machine == b.machine)
    return {.kind = LinkKind::network, .text = "network within one machine"};
  const auto rate_a = port_rate(a), rate_b = port_rate(b);
  if (!rate_a || !rate_b) return {.kind = LinkKind::network, .text = "network"};
  const double bits = std::min(*rate_a, *rate_b);
  return {.kind = LinkKind::network,
          .line_rate_bytes_per_second = bits / 8,
          .text = fmt::format("network, {}", format_bit_rate(bits))};
}

LinkType host_memory() {
  return {.kind = LinkKind::memory, .text = "host memory"};
}

}  // namespace

const char* to_string(LinkKind kind) {
  constexpr const char* names[] = {"memory", "nvlink", "pcie", "network", "unknown"};
  return names[static_cast<int>(kind)];
}

std::optional<double> nvlink_rate(int generation) {
  return rate_of(nvlink_gigabytes, generation);
}

std::optional<double> pcie_rate(int generation, int width) {
  const auto lane = rate_of(pcie_lane_gigabytes, generation);
  return lane && width > 0 ? std::optional(*lane * width) : std::nullopt;
}

LinkType classify(const LinkEndpoint& a, const LinkEndpoint& b) {
  if (a.host_id != b.host_id) return network_between(a, b);
  if (!a.is_gpu || !b.is_gpu) return host_memory();
  if (auto nvlink = nvlink_between(a, b)) return *nvlink;
  return pcie_between(a, b);
}

LinkType classify_to_host(const LinkEndpoint& end) {
  return end.is_gpu ? pcie_between(end, end) : host_memory();
}

Json to_json(const LinkType& type) {
  const auto number = [](int value) { return value > 0 ? Json(value) : Json(); };
  return {{"kind", to_string(type.kind)},
          {"generation", number(type.generation)},
          {"width", number(type.width)},
          {"text", type.text},
          {"line_rate_gb_per_second",
           type.line_rate_bytes_per_second ? Json(*type.line_rate_bytes_per_second * 1e-9) : Json()}};
}

}  // namespace egt
