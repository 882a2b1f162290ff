#include "workload/links/link_type.hpp"

#include <gtest/gtest.h>

#include "tests/support/link_fixtures.hpp"

namespace egt {
namespace {

using namespace fixtures;

/// In both directions, which must agree.
LinkType type_of(const LinkEndpoint& a, const LinkEndpoint& b) {
  const LinkType type = classify(a, b), back = classify(b, a);
  EXPECT_EQ(type.text, back.text);
  EXPECT_EQ(type.kind, back.kind);
  EXPECT_EQ(type.line_rate_bytes_per_second, back.line_rate_bytes_per_second);
  return type;
}

TEST(LinkType, H200sThroughSwitches) {
  const LinkType type = type_of(h200_end(0), h200_end(1));
  EXPECT_EQ(type.kind, LinkKind::nvlink);
  EXPECT_EQ(type.text, "NVLink 4 x18 through NVSwitch");
  EXPECT_DOUBLE_EQ(*type.line_rate_bytes_per_second, 450e9);
  EXPECT_EQ(type.generation, 4);
  EXPECT_EQ(type.width, 18);
}

TEST(LinkType, TheFewerLinksThatAreUpCount) {
  LinkEndpoint weak = h200_end(1);
  weak.links.nvlinks.resize(16);
  const LinkType type = type_of(h200_end(0), weak);
  EXPECT_EQ(type.text, "NVLink 4 x16 through NVSwitch");
  EXPECT_DOUBLE_EQ(*type.line_rate_bytes_per_second, 400e9);
}

TEST(LinkType, GpusThatAreJoinedDirectly) {  // as in a DGX with A100s on a bridge, or a V100 cube mesh
  LinkEndpoint a = gpu_end(0), b = gpu_end(1), c = gpu_end(2);
  const auto join = [](LinkEndpoint& from, const LinkEndpoint& to, int links) {
    for (int i = 0; i < links; ++i)
      from.links.nvlinks.push_back({.generation = 3, .end = NvLink::End::gpu, .remote_pci = to.pci_id});
  };
  join(a, b, 4);
  join(b, a, 4);
  join(b, c, 2);
  join(c, b, 2);
  EXPECT_EQ(type_of(a, b).text, "NVLink 3 x4");
  EXPECT_DOUBLE_EQ(*type_of(a, b).line_rate_bytes_per_second, 100e9);
  EXPECT_EQ(type_of(b, c).text, "NVLink 3 x2");
  EXPECT_EQ(type_of(a, c).text, "PCIe 5 x16") << "both have NVLinks, but none to each other";
}

TEST(LinkType, WhatTheDriverSaysOfThePair) {
  LinkEndpoint a = h200_end(0), b = h200_end(1);
  a.links.nvlink_to[b.pci_id] = false;  // two partitions of one fabric
  EXPECT_EQ(type_of(a, b).kind, LinkKind::pcie);
  for (LinkEndpoint* end : {&a, &b})
    for (NvLink& link : end->links.nvlinks) link.end = NvLink::End::unknown;
  a.links.nvlink_to.clear();
  EXPECT_EQ(type_of(a, b).kind, LinkKind::pcie) << "nobody says what is at their ends";
  b.links.nvlink_to[a.pci_id] = true;
  EXPECT_EQ(type_of(a, b).text, "NVLink 4 x18");
}

TEST(LinkType, Pcie) {
  LinkEndpoint a = gpu_end(0), b = gpu_end(1);
  EXPECT_EQ(type_of(a, b).text, "PCIe 5 x16");
  EXPECT_NEAR(*type_of(a, b).line_rate_bytes_per_second, 63.0e9, 0.1e9);
  b.links.pcie.max_generation = 4;
  b.links.pcie.max_width = 8;
  EXPECT_EQ(type_of(a, b).text, "PCIe 4 x8");
  EXPECT_NEAR(*type_of(a, b).line_rate_bytes_per_second, 15.75e9, 0.01e9);
}

TEST(LinkType, WithoutNvmlNothingIsKnown) {
  LinkEndpoint a = gpu_end(0), b = gpu_end(1);
  b.links = {};
  EXPECT_EQ(type_of(a, b).kind, LinkKind::unknown);
  EXPECT_FALSE(type_of(a, b).line_rate_bytes_per_second);
  EXPECT_EQ(classify_to_host(b).kind, LinkKind::unknown);
}

TEST(LinkType, OtherHostsAreANetwork) {
  LinkEndpoint a = h200_end(0, "left"), b = h200_end(1, "right");
  EXPECT_EQ(type_of(a, b).text, "network");
  EXPECT_FALSE(type_of(a, b).line_rate_bytes_per_second);
  a.ports = {{.name = "eth0", .bits_per_second = 25e9, .infiniband = false}};
  b.ports = {{.name = "eth0", .bits_per_second = 10e9, .infiniband = false}};
  EXPECT_EQ(type_of(a, b).text, "network, 10 Gb/s");
  EXPECT_DOUBLE_EQ(*type_of(a, b).line_rate_bytes_per_second, 1.25e9);
  b.ports.push_back({.name = "eth1", .bits_per_second = 100e9, .infiniband = false});
  EXPECT_EQ(type_of(a, b).text, "network") << "which of the two is used is not known";
  for (LinkEndpoint* end : {&a, &b})
    for (int port = 0; port < 8; ++port)
      end->ports.push_back({.name = "mlx5", .bits_per_second = 400e9, .infiniband = true});
  EXPECT_EQ(type_of(a, b).text, "network, 400 Gb/s");
}

TEST(LinkType, NcclHostidUnlikeOnOneMachineIsANetworkWithoutALineRate) {
  LinkEndpoint a = h200_end(0), b = h200_end(1);
  a.host_id = "left";
  b.host_id = "right";
  for (LinkEndpoint* end : {&a, &b})
    end->ports = {{.name = "eth0", .bits_per_second = 25e9, .infiniband = false}};
  const LinkType type = type_of(a, b);
  EXPECT_EQ(type.kind, LinkKind::network);
  EXPECT_EQ(type.text, "network within one machine");
  EXPECT_FALSE(type.line_rate_bytes_per_second);
}

TEST(LinkType, HostBackend) {
  EXPECT_EQ(type_of(host_end(0), host_end(1)).kind, LinkKind::memory);
  EXPECT_EQ(type_of(host_end(0, "left"), host_end(1, "right")).kind, LinkKind::network);
  EXPECT_EQ(classify_to_host(host_end(0)).kind, LinkKind::memory);
  EXPECT_EQ(classify_to_host(gpu_end(0)).text, "PCIe 5 x16");
}

TEST(LinkRates, OfEveryGeneration) {
  const double nvlink[] = {20e9, 25e9, 25e9, 25e9, 50e9};
  for (int generation = 1; generation <= 5; ++generation)
    EXPECT_DOUBLE_EQ(*nvlink_rate(generation), nvlink[generation - 1]);
  const double pcie[] = {4.0e9, 8.0e9, 15.75e9, 31.5e9, 63.0e9, 121.0e9};  // of 16 lanes
  for (int generation = 1; generation <= 6; ++generation)
    EXPECT_NEAR(*pcie_rate(generation, 16), pcie[generation - 1], 0.02 * pcie[generation - 1]);
  for (const int unknown : {-1, 0, 9}) {
    EXPECT_FALSE(nvlink_rate(unknown));
    EXPECT_FALSE(pcie_rate(unknown, 16));
  }
  EXPECT_FALSE(pcie_rate(5, 0));
}

TEST(LinkEndJson, GivesTheSameAgain) {
  LinkEndpoint end = h200_end(3);
  end.numa_node = 1;
  end.links.nvlink_to[pci_of(2)] = true;
  end.links.nvlinks[5] = {.generation = 3, .end = NvLink::End::gpu, .remote_pci = pci_of(7)};
  end.ports = {{.name = "mlx5_0/1", .bits_per_second = 4e11, .infiniband = true}};
  end.untold = "no NVML";
  EXPECT_EQ(to_json(link_end_from(to_json(end))), to_json(end));
  EXPECT_EQ(link_end_from(Json::object()).rank, -1);
  EXPECT_EQ(to_json(link_end_from(to_json(host_end(0)))), to_json(host_end(0)));
}

TEST(HostName, TheIdWhereTheHostnameIsShared) {
  std::vector<LinkEndpoint> ends = {host_end(0, "a"), host_end(1, "b"), host_end(2, "b")};
  EXPECT_EQ(host_name(ends[1], ends), "b");
  ends[2].host_id = "b:2";
  EXPECT_EQ(host_name(ends[1], ends), "b");
  EXPECT_EQ(host_name(ends[2], ends), "b:2");
}

}  // namespace
}  // namespace egt
