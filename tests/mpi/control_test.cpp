#include <thread>

#include "egt/core/clock.hpp"
#include "egt/core/wait.hpp"
#include "mpi_test.hpp"
#include "ranks/mpi/mpi_control.hpp"

namespace egt::test {
namespace {

/// A text with every byte value; its length differs by rank, and rank 1's is empty.
std::string text_of(int rank, std::size_t scale) {
  std::string text;
  for (std::size_t i = 0; i < scale * static_cast<std::size_t>(rank == 1 ? 0 : rank + 1); ++i)
    text.push_back(static_cast<char>(i * 7 + static_cast<std::size_t>(rank)));
  return text;
}

class Control : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_mpi_control(mpi_session(), 10);
    ASSERT_OK(opened.status());
    control = std::move(opened.value());
    place = control->place();
  }

  /// Rank 0's next text; blocks until it arrives.
  Result<std::string> next_text() {
    std::string text;
    const auto poll = [&]() -> Result<bool> {
      EGT_TRY_ASSIGN(auto received, control->receive());
      if (received) text = std::move(*received);
      return received.has_value();
    };
    EGT_TRY(wait_until(poll, {.seconds = 10, .what = "a text"}));
    return text;
  }

  std::unique_ptr<egt::Control> control;
  RankPlace place;
};

TEST_F(Control, PlaceIsThatOfOneHost) {
  EXPECT_GE(place.size, 1);
  EXPECT_EQ(place.local_rank, place.rank);
  EXPECT_EQ(place.local_size, place.size);
  EXPECT_FALSE(place.hostname.empty());
  EXPECT_TRUE(mpi_session().mpi_version().starts_with("Open MPI ")) << mpi_session().mpi_version();
}

TEST_F(Control, GatherGivesRankZeroAllTextsInOrder) {
  for (const std::size_t scale : {std::size_t{1}, std::size_t{1000}, std::size_t{300000}}) {
    const auto texts = control->gather(text_of(place.rank, scale));
    ASSERT_OK(texts.status());
    if (place.rank != 0) {
      EXPECT_TRUE(texts.value().empty());
      continue;
    }
    ASSERT_EQ(texts.value().size(), static_cast<std::size_t>(place.size));
    for (int rank = 0; rank < place.size; ++rank)
      EXPECT_TRUE(texts.value()[static_cast<std::size_t>(rank)] == text_of(rank, scale)) << rank;
  }
}

TEST_F(Control, BroadcastGivesAllRankZerosText) {
  for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{500000}}) {
    const auto text = control->broadcast(place.rank == 0 ? text_of(0, scale) : "of no interest");
    ASSERT_OK(text.status());
    EXPECT_TRUE(text.value() == text_of(0, scale));
  }
}

TEST_F(Control, BarrierMeetsTheLast) {
  const Clock::time_point start = Clock::now();
  if (place.rank == place.size - 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  ASSERT_OK(control->barrier());
  EXPECT_GE(seconds_since(start), 0.15);
}

TEST_F(Control, TextsToRootArriveWholeAndInOrder) {
  const std::vector<std::string> sent = {"first", "", text_of(2, 100000), "last"};
  for (const std::string& text : sent) ASSERT_OK(control->send_to_root(std::to_string(place.rank) + text));
  if (place.rank != 0) return;
  std::vector<std::size_t> received(static_cast<std::size_t>(place.size));
  for (std::size_t i = 0; i < sent.size() * received.size(); ++i) {
    const auto text = next_text();
    ASSERT_OK(text.status());
    const auto from = static_cast<std::size_t>(text.value()[0] - '0');
    ASSERT_LT(from, received.size());
    EXPECT_TRUE(text.value().substr(1) == sent[received[from]++]);
  }
  const auto no_more = control->receive();
  ASSERT_OK(no_more.status());
  EXPECT_FALSE(no_more.value().has_value());
}

TEST_F(Control, AMissingPeerIsATimeoutAndItsLateCallStillMatches) {
  if (place.size == 1) GTEST_SKIP() << "needs two ranks";
  auto opened = open_mpi_control(mpi_session(), 0.5);
  ASSERT_OK(opened.status());
  egt::Control& impatient = *opened.value();
  const int late = place.size - 1;
  if (place.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const Status status = impatient.barrier();
  if (place.rank == late) {
    EXPECT_TRUE(status.ok()) << status.what();
  } else {
    EXPECT_EQ(status.code(), StatusCode::timeout) << status.what();
  }
  ASSERT_OK(control->barrier());
  const auto again = impatient.broadcast("together again");
  ASSERT_OK(again.status());
  EXPECT_EQ(again.value(), "together again");
}

}  // namespace
}  // namespace egt::test
