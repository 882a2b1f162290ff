#include "egt/ranks/topology.hpp"

#include <cstdlib>

#include "egt/ranks/agreement.hpp"

#include "mpi_test.hpp"
#include "ranks/mpi/mpi_control.hpp"

namespace egt::test {
namespace {

/// Runs on one host; also with a different NCCL_HOSTID on some ranks.
TEST(Places, AreKnownToAllRanks) {
  auto control = open_mpi_control(mpi_session(), 10);
  ASSERT_OK(control.status());
  const RankPlace& own = control.value()->place();
  const char* given = std::getenv("NCCL_HOSTID");
  const std::string expected_id = given ? given : own.hostname;
  EXPECT_EQ(own.host_id, expected_id);

  const auto expected_ids = control.value()->gather(expected_id);
  ASSERT_OK(expected_ids.status());
  std::string joined;
  for (const std::string& id : expected_ids.value()) joined += id + "\n";
  const auto ids = control.value()->broadcast(joined);
  ASSERT_OK(ids.status());

  const auto places = gather_places(*control.value());
  ASSERT_OK(places.status());
  ASSERT_EQ(places.value().size(), static_cast<std::size_t>(own.size));
  std::string reported;
  for (int rank = 0; rank < own.size; ++rank) {
    const RankPlace& place = places.value()[static_cast<std::size_t>(rank)];
    EXPECT_EQ(place.rank, rank);
    EXPECT_EQ(place.size, own.size);
    EXPECT_EQ(place.local_rank, rank);
    EXPECT_EQ(place.local_size, own.size);
    EXPECT_EQ(place.hostname, own.hostname);
    reported += place.host_id + "\n";
  }
  EXPECT_EQ(reported, ids.value());
}

/// Texts have any length and any bytes; texts of other ranks must not overlap them.
TEST(Texts, AreKnownToAllRanks) {
  auto control = open_mpi_control(mpi_session(), 10);
  ASSERT_OK(control.status());
  const auto text_of = [](int rank) {
    if (rank % 3 == 1) return std::string();
    return std::string(static_cast<std::size_t>(rank) * 9, 'x') + std::string("7 \n\0 12 a\xff", 11);
  };
  const RankPlace& own = control.value()->place();
  const auto texts = all_gather(*control.value(), text_of(own.rank));
  ASSERT_OK(texts.status());
  ASSERT_EQ(texts.value().size(), static_cast<std::size_t>(own.size));
  for (int rank = 0; rank < own.size; ++rank)
    EXPECT_EQ(texts.value()[static_cast<std::size_t>(rank)], text_of(rank)) << "rank " << rank;
}

}  // namespace
}  // namespace egt::test
