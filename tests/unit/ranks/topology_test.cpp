#include <gtest/gtest.h>

#include "egt/ranks/topology.hpp"

namespace egt {
namespace {

TEST(HostId, IsTheHostnameWhereThatTellsHostsApart) {
  const std::vector<RankHost> hosts{{"a", 0}, {"b", 1}, {"a", 0}, {"b", 1}};
  EXPECT_EQ(host_id_of(hosts, 0, nullptr), "a");
  EXPECT_EQ(host_id_of(hosts, 2, nullptr), "a");
  EXPECT_EQ(host_id_of(hosts, 3, nullptr), "b");
}

TEST(HostId, TellsHostsOfOneNameApartAsMpiDoes) {
  const std::vector<RankHost> hosts{{"a", 0}, {"a", 1}, {"a", 0}, {"a", 1}, {"b", 4}};
  EXPECT_EQ(host_id_of(hosts, 0, nullptr), "a:0");
  EXPECT_EQ(host_id_of(hosts, 1, nullptr), "a:1");
  EXPECT_EQ(host_id_of(hosts, 2, nullptr), "a:0");
  EXPECT_EQ(host_id_of(hosts, 3, nullptr), "a:1");
  EXPECT_EQ(host_id_of(hosts, 4, nullptr), "b");
}

TEST(HostId, IsWhatNcclWasTold) {
  const std::vector<RankHost> hosts{{"a", 0}, {"a", 1}};
  EXPECT_EQ(host_id_of(hosts, 1, "left"), "left");
  EXPECT_EQ(host_id_of(hosts, 1, ""), "a:1");
}

}  // namespace
}  // namespace egt
