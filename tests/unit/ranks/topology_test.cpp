#include <gtest/gtest.h>

#include "egt/ranks/topology.hpp"

namespace egt {
namespace {

TEST(HostId, IsTheHostnameWhereThatTellsHostsApart) {
  const std::vector<RankHost> seats{{"a", 0}, {"b", 1}, {"a", 0}, {"b", 1}};
  EXPECT_EQ(host_id_of(seats, 0, nullptr), "a");
  EXPECT_EQ(host_id_of(seats, 2, nullptr), "a");
  EXPECT_EQ(host_id_of(seats, 3, nullptr), "b");
}

TEST(HostId, TellsHostsOfOneNameApartAsMpiDoes) {
  const std::vector<RankHost> seats{{"a", 0}, {"a", 1}, {"a", 0}, {"a", 1}, {"b", 4}};
  EXPECT_EQ(host_id_of(seats, 0, nullptr), "a:0");
  EXPECT_EQ(host_id_of(seats, 1, nullptr), "a:1");
  EXPECT_EQ(host_id_of(seats, 2, nullptr), "a:0");
  EXPECT_EQ(host_id_of(seats, 3, nullptr), "a:1");
  EXPECT_EQ(host_id_of(seats, 4, nullptr), "b");
}

TEST(HostId, IsWhatNcclWasTold) {
  const std::vector<RankHost> seats{{"a", 0}, {"a", 1}};
  EXPECT_EQ(host_id_of(seats, 1, "left"), "left");
  EXPECT_EQ(host_id_of(seats, 1, ""), "a:1");
}

}  // namespace
}  // namespace egt
