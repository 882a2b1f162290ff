// Rank 0's evaluation of all ranks' records: identified ranks, their metrics, and the result's table.
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/health/straggler_detector.hpp"

namespace egt {
namespace {

using testing::HasSubstr;

/// Ranks that report once per second; a test changes their values.
struct Ranks {
  explicit Ranks(int count)
      : compute_ms(fill(count, 36)), write_rate(fill(count, 1)), batch(fill(count, 64)) {
    for (int rank = 0; rank < count; ++rank) model.push_back("NVIDIA H200");
    sums = bytes = write_ms = unreported_ms = joules = heat_s = fill(count, 0);
    watts = fill(count, 688);
    limit_w = fill(count, 700);
    duty = fill(count, 1);
  }
  static std::vector<double> fill(int count, double value) {
    return std::vector<double>(static_cast<std::size_t>(count), value);
  }
  int count() const { return static_cast<int>(compute_ms.size()); }

  Record start(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    const Json device = {
        {"name", model[r]}, {"uuid", "GPU-" + std::to_string(rank)}, {"power_limit_w", limit_w[r]}};
    return {.kind = RecordKind::start,
            .time = 1000,
            .rank = rank,
            .body = {{"identity", {{"device", device}, {"hostname", "node7"}, {"batch", batch[r]}}},
                     {"size", count()}}};
  }

  Record progress(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    Json train = {{"compute_ms", compute_ms[r]}};
    if (rank == 0) train["peers"] = {{"steps", steps}, {"compute_ms_sums", sums}};
    const Json io = {{"bytes_written", bytes[r]},
                     {"bytes_read", 0},
                     {"write_gb_per_s", write_ms[r] > 0 ? Json(bytes[r] / write_ms[r] * 1e-6) : Json()},
                     {"read_gb_per_s", nullptr}};
    return {.kind = RecordKind::progress,
            .time = 1000 + seconds,
            .rank = rank,
            .step = static_cast<std::int64_t>(steps),
            .body = {{"parts", {{{"name", "train"}, {"figures", train}}, {{"name", "io"}, {"figures", io}}}},
                     {"telemetry",
                      {{"power_w", {{"avg", 600.0 + rank}}},
                       {"temperature_c", nullptr},
                       {"energy_j", joules[r]},
                       {"power_w_mean", joules[r] / seconds},
                       {"duty", {{"last", duty[r]}}},
                       {"throttle_seconds", {{"sw_thermal", heat_s[r]}, {"sw_power_cap", seconds}}}}}}};
  }

  /// Advances time by one second.
  void work() {
    seconds += 1;
    steps += 10;
    for (std::size_t r = 0; r < compute_ms.size(); ++r) {
      sums[r] += 10 * compute_ms[r];
      bytes[r] += 1e8;
      unreported_ms[r] += 1e8 / write_rate[r] * 1e-6;
      if (std::fmod(seconds, file_seconds) == 0) write_ms[r] += std::exchange(unreported_ms[r], 0.0);
      joules[r] += watts[r];
      if (is_hot) heat_s[r] += 0.5;
    }
  }

  std::vector<double> compute_ms, write_rate, batch, sums, bytes, write_ms, unreported_ms;
  std::vector<double> watts, limit_w, joules, heat_s, duty;
  std::vector<std::string> model;
  double seconds = 0, steps = 0;
  bool is_hot = false;      ///< applies to all ranks
  double file_seconds = 1;  ///< a file's write time is added at its end, its bytes while they are written
};

std::vector<Finding> run(PeerReview& review, Ranks& ranks, int seconds) {
  std::vector<Finding> found;
  const auto take = [&](const Record& record) {
    for (const Finding& finding : review.add(record)) found.push_back(finding);
  };
  if (ranks.seconds == 0)
    for (int rank = 0; rank < ranks.count(); ++rank) take(ranks.start(rank));
  for (int i = 0; i < seconds; ++i) {
    ranks.work();
    for (int rank = ranks.count(); rank-- > 0;) take(ranks.progress(rank));
  }
  return found;
}

TEST(StragglerDetector, NamesTheSlowRankOnceWithItsFiguresWithinAMinute) {
  Ranks ranks(4);
  ranks.compute_ms = {36, 36.1, 37.9, 35.9};
  PeerReview review;
  const auto found = run(review, ranks, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "outlier");
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].hostname, "node7");
  EXPECT_EQ(found[0].device_uuid, "GPU-2");
  EXPECT_EQ(found[0].where, "step compute time");
  EXPECT_EQ(found[0].text, "step compute time 5.3 % above the median of its 3 peers: 37.9 ms, not 36 ms");
  EXPECT_NEAR(*found[0].expected, 36, 0.01);
  EXPECT_NEAR(*found[0].actual, 37.9, 0.01);
  EXPECT_TRUE(run(review, ranks, 100).empty()) << "it was named";
}

TEST(StragglerDetector, EqualRanksAreNotNamed) {
  Ranks ranks(4);
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 600).empty());
}

TEST(StragglerDetector, OfTwoRanksTheSlowerIsNamedBesideTheOther) {
  Ranks ranks(2);
  ranks.compute_ms = {40, 36};
  PeerReview review;
  const auto found = run(review, ranks, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].text, "step compute time 11.1 % above rank 1's: 40 ms, not 36 ms");
}

TEST(StragglerDetector, ASlowRankThatHeatHeldDownIsToldSo) {
  Ranks ranks(2);
  ranks.compute_ms = {40, 36};
  ranks.heat_s = {70, 0};
  PeerReview review;
  const auto found = run(review, ranks, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].text, HasSubstr("40 ms, not 36 ms; thermal throttling or power brake for 70 s"));
}

TEST(StragglerDetector, ARankWithMoreSamplesMayTakeMoreTime) {
  Ranks ranks(4);
  ranks.compute_ms = {36, 36, 54, 36};
  ranks.batch = {64, 64, 96, 64};
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 100).empty());
}

TEST(StragglerDetector, RanksOfAnotherModelAreNoPeers) {
  Ranks ranks(6);
  ranks.compute_ms = {36, 36, 36, 70, 70, 70};
  ranks.model = {"H200", "H200", "H200", "H100", "H100", "H100"};
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 100).empty());
}

TEST(StragglerDetector, ACardBelowItsPeersPowerIsNamed) {
  Ranks ranks(4);
  ranks.watts = {688, 690, 610, 686};
  PeerReview review;
  const auto found = run(review, ranks, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "outlier");
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].where, "power");
  EXPECT_EQ(found[0].text,
            "power 11 % below the median of its 3 peers: 610 W, not 688 W, of 700 W, and no heat holds it "
            "down: look at its power supply, cable and voltage regulator");
  EXPECT_TRUE(run(review, ranks, 100).empty()) << "it was named";
}

TEST(StragglerDetector, OfTwoCardsTheOneWithLessPowerIsNamed) {
  Ranks ranks(2);
  ranks.watts = {600, 690};
  PeerReview review;
  const auto found = run(review, ranks, 60);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_THAT(found[0].text, HasSubstr("power 13 % below rank 1's: 600 W, not 690 W"));
}

/// None of these is a faulty GPU.
TEST(StragglerDetector, LessPowerForAReasonIsNoOutlier) {
  const auto names_nobody = [](const char* why, const std::function<void(Ranks&)>& change) {
    Ranks ranks(4);
    ranks.watts = {688, 690, 610, 686};
    change(ranks);
    PeerReview review;
    EXPECT_TRUE(run(review, ranks, 120).empty()) << why;
  };
  names_nobody("8 %", [](Ranks& ranks) { ranks.watts[2] = 634; });
  names_nobody("a limit of its own", [](Ranks& ranks) { ranks.limit_w[2] = 620; });
  names_nobody("another model", [](Ranks& ranks) { ranks.model[2] = "NVIDIA H100"; });
  names_nobody("heat", [](Ranks& ranks) { ranks.is_hot = true; });
  names_nobody("the guard", [](Ranks& ranks) { ranks.duty[2] = 0.8; });
  names_nobody("no full load", [](Ranks& ranks) { ranks.watts = {500, 520, 440, 510}; });
}

TEST(StragglerDetector, ADiskOfHalfTheBandwidthIsNamedASmallerDifferenceIsNot) {
  Ranks ranks(4);
  ranks.write_rate = {1, 1, 1, 0.6};
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 300).empty());
  ranks.write_rate[3] = 0.3;
  const auto found = run(review, ranks, 300);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 3);
  EXPECT_EQ(found[0].where, "file write bandwidth");
  EXPECT_THAT(found[0].text, HasSubstr("70 % below the median of its 3 peers: 0.3 GB/s, not 1 GB/s"));
}

/// Most windows add bytes but no time; the rounding error of the rate is no bandwidth.
TEST(StragglerDetector, BytesWithoutTheirTimeAreNoBandwidth) {
  Ranks ranks(2);
  ranks.file_seconds = 7;
  ranks.write_rate = {0.969, 0.971};
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 600).empty());
}

TEST(StragglerDetector, RecordsThatLackFiguresOrRanksChangeNothing) {
  Ranks ranks(4);
  ranks.compute_ms = {36, 36, NAN, 36};
  PeerReview review;
  EXPECT_TRUE(review.add(ranks.progress(0)).empty()) << "nobody has told who he is";
  EXPECT_TRUE(run(review, ranks, 30).empty());
  Record empty = ranks.progress(0);
  empty.body = {{"parts", nullptr}, {"telemetry", 3}};
  EXPECT_TRUE(review.add(empty).empty());
  empty.body = nullptr;
  EXPECT_TRUE(review.add(empty).empty());
}

TEST(StragglerDetector, ARankThatStopsReportingIsNotNamedAndTheOthersStillAre) {
  Ranks ranks(4);
  ranks.write_rate = {1, 1, 1, 0.2};
  PeerReview review;
  EXPECT_TRUE(run(review, ranks, 60).empty());
  const auto first = ranks.progress(3);
  for (int i = 0; i < 300; ++i) {
    ranks.work();
    for (int rank = 3; rank-- > 0;) EXPECT_TRUE(review.add(ranks.progress(rank)).empty());
  }
  ranks.write_rate[1] = 0.2;
  bool named = false;
  for (int i = 0; i < 300; ++i) {
    ranks.work();
    for (int rank = 3; rank-- > 0;)
      for (const Finding& finding : review.add(ranks.progress(rank))) named = named || finding.rank == 1;
  }
  EXPECT_TRUE(named);
}

TEST(StragglerDetector, TheSameRecordsGiveTheSameFindings) {
  for (int round = 0; round < 2; ++round) {
    Ranks ranks(3);
    ranks.compute_ms = {36, 36.1, 39};
    PeerReview review;
    EXPECT_EQ(run(review, ranks, 100).size(), 1u);
  }
}

TEST(StragglerDetector, TheTableHasEveryRanksShareOfItsModelsMedian) {
  Ranks ranks(3);
  ranks.compute_ms = {36, 40, 36};
  PeerReview review;
  run(review, ranks, 3);
  const Json table = review.to_json();
  EXPECT_EQ(table["1"]["compute_ms"], (Json{{"value", 40.0}, {"median", 36.0}, {"ratio", 40.0 / 36.0}}));
  EXPECT_EQ(table["0"]["power_w"]["value"], 600.0);
  EXPECT_EQ(table["2"]["write_gb_per_s"]["ratio"], 1.0);
  EXPECT_TRUE(table["2"]["temperature_c"]["value"].is_null());
  EXPECT_TRUE(table["2"]["read_gb_per_s"]["ratio"].is_null());
}

TEST(StragglerDetector, WhatItFindsGoesIntoTheQueue) {
  Ranks ranks(4);
  ranks.compute_ms = {36, 36, 36, 40};
  RecordQueue queue(0);
  StragglerDetector straggler_detector(queue);
  for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(straggler_detector.write(ranks.start(rank)).ok());
  for (int i = 0; i < 60; ++i) {
    ranks.work();
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(straggler_detector.write(ranks.progress(rank)).ok());
  }
  const std::vector<Record> records = queue.drain();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, RecordKind::finding);
  EXPECT_EQ(records[0].body["rank"], 3);
}

Record corrected(int rank, Json counter, const char* key = "ecc_corrected") {
  return {.kind = RecordKind::progress,
          .time = 1001,
          .rank = rank,
          .body = {{"counters", {{key, std::move(counter)}}}}};
}

/// The findings about a rank that corrects `own` errors while its two peers correct `others`.
std::vector<Finding> compare_corrected(int own, int others, const char* key = "ecc_corrected") {
  Ranks ranks(3);
  PeerReview review;
  for (int rank = 0; rank < 3; ++rank) review.add(ranks.start(rank));
  std::vector<Finding> found;
  for (int twice = 0; twice < 2; ++twice)
    for (int rank = 0; rank < 3; ++rank) {
      const int count = rank == 1 ? own : others;
      Json counter = {{"before", 7}, {"after", 7 + count}};
      if (count > 0) counter["moved"] = {{"train", count - 1}, {"io", 1}};
      for (const Finding& finding : review.add(corrected(rank, counter, key))) found.push_back(finding);
    }
  return found;
}

TEST(PeerReview, ARankThatCorrectsFarMoreMemoryErrorsThanItsPeersIsNamedOnce) {
  const auto found = compare_corrected(89'990, 3);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, "ecc");
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].device_uuid, "GPU-1");
  EXPECT_EQ(found[0].text, "89990 new corrected memory errors (ECC), the median of its peers is 3");
  EXPECT_EQ(compare_corrected(100, 0).size(), 1u);
  EXPECT_TRUE(compare_corrected(99, 0).empty());
  EXPECT_TRUE(compare_corrected(900, 100).empty());
  const auto of_links = compare_corrected(500, 3, "nvlink_crc");
  ASSERT_EQ(of_links.size(), 1u);
  EXPECT_EQ(of_links[0].kind, "link");
  EXPECT_EQ(of_links[0].text, "500 new NVLink CRC errors, the median of its peers is 3");
}

TEST(PeerReview, ARankWhosePeersCountNoCorrectedErrorsIsComparedWithNobody) {
  Ranks ranks(2);
  PeerReview review;
  for (int rank = 0; rank < 2; ++rank) review.add(ranks.start(rank));
  EXPECT_TRUE(review.add(corrected(1, {{"before", nullptr}, {"after", nullptr}})).empty());
  EXPECT_TRUE(review.add(corrected(0, {{"before", 0}, {"after", 5000}, {"moved", {{"io", 5000}}}})).empty());
}

}  // namespace
}  // namespace egt
