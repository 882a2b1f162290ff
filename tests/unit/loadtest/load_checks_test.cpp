#include "loadtest/load_checks.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "device/host/host_stream.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::vector<LoadAnswer> asked = {{"weights", LoadAnswerKind::state},
                                       {"momentum", LoadAnswerKind::state},
                                       {"embeddings", LoadAnswerKind::derived},
                                       {"activation of conv1"},
                                       {"activation of fc1"},
                                       {"gradient of fc1"}};
enum Asked : std::size_t { weights, momentum, embeddings, conv1, fc1, fc1_gradient };

Digest digest(std::uint64_t a) {
  return {a, ~a};
}

/// Answers of all ranks in a check: [rank][round * answers + answer].
class Check {
 public:
  explicit Check(int ranks) {
    Answers right;
    for (std::size_t i = 0; i < 2 * asked.size(); ++i) right.push_back(digest(100 + i % asked.size()));
    all.assign(static_cast<std::size_t>(ranks), right);
  }
  /// `rank` gives this answer in `rounds`, a subset of {0, 1}.
  Check& with(int rank, std::vector<std::size_t> rounds, std::size_t answer, std::uint64_t value) {
    for (const std::size_t round : rounds)
      all[static_cast<std::size_t>(rank)][round * asked.size() + answer] = digest(value);
    return *this;
  }
  std::vector<Answers> all;
};

/// The other ranks give the answers of a check. First they exchange their models, then they agree on the
/// groups.
class OthersSay final : public SingleRankCommunicator {
 public:
  OthersSay(Device& device, int rank, std::vector<int> models)
      : SingleRankCommunicator(device), rank_(rank), models_(std::move(models)) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(models_.size()); }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    as_host_stream(stream).enqueue([this, send, recv, bytes, answers = next, is_first = gathers_++ == 0] {
      const std::size_t own = bytes - sizeof(Digest);  // a stamp is last
      const bool is_single = own == sizeof(Digest);
      for (int r = 0; r < size(); ++r) {
        void* const to = static_cast<std::byte*>(recv) + static_cast<std::size_t>(r) * bytes;
        const Digest model = digest(static_cast<std::uint64_t>(model_of(r)));
        if (r == rank_ || (is_single && (!is_first || model_of(r) == model_of(rank_))))
          std::memcpy(to, send, bytes);
        else
          std::memcpy(to, is_single ? &model : answers[static_cast<std::size_t>(r)].data(), own);
      }
      return Status();
    });
    return {};
  }

  std::vector<Answers> next;

 private:
  int model_of(int rank) const { return models_[static_cast<std::size_t>(rank)]; }

  const int rank_;
  const std::vector<int> models_;
  int gathers_ = 0;
};

class ScriptedJob final : public LoadJob {
 public:
  explicit ScriptedJob(Device& device)
      : stream_(std::move(device.create_stream(StreamPriority::normal).value())) {}
  std::int64_t iterations() const override { return 1; }
  Status run(std::int64_t, std::vector<double>&) override { return {}; }
  const std::vector<LoadAnswer>& answers() const override { return questions; }
  Status enqueue_answers(Digest* digests, int round) override {
    calls.push_back(round);
    as_host_stream(*stream_).enqueue([this, digests, round] {
      const auto first = next.begin() + round * static_cast<std::ptrdiff_t>(questions.size());
      std::copy(first, first + static_cast<std::ptrdiff_t>(questions.size()), digests);
      return Status();
    });
    return {};
  }
  Stream& stream() override { return *stream_; }
  Result<std::string> inject(const Injection&, Flip&) override { return std::string(); }
  LoadJobFigures figures() const override { return {}; }
  std::string failure() const override { return {}; }
  Status give_up(double) override { return {}; }

  std::vector<LoadAnswer> questions = asked;
  Answers next;            ///< this rank's answers of both rounds
  std::vector<int> calls;  ///< per round

 private:
  std::unique_ptr<Stream> stream_;
};

/// One rank, with the known state of the other ranks.
struct LoadRank {
  LoadRank(int rank, const std::vector<int>& models) : others(*world.device, rank, models) {
    world.place.rank = rank;
    world.place.size = static_cast<int>(models.size());
    EXPECT_EQ(checks.prepare().what(), "");
  }
  void begin() { EXPECT_EQ(checks.begin(job, "train_simple_cnn_bs16").what(), ""); }
  void check(const Check& check, const std::function<Status()>& between = {}) {
    others.next = check.all;
    job.next = check.all[static_cast<std::size_t>(world.place.rank)];
    EXPECT_EQ(checks.check(job, 7, between).what(), "");
  }

  World world;
  OthersSay others;
  Environment environment{*world.device,  others,        world.records, world.place, 42,
                          world.injector, "test device", world.board,   world.load};
  LoadChecks checks{environment};
  ScriptedJob job{*world.device};  ///< declared after the checks, whose memory its stream writes to
};

struct Story {
  std::vector<Json> faults;        ///< of all ranks
  std::vector<std::size_t> found;  ///< ranks that know of a fault
  std::vector<VerifiedWork> work;  ///< per rank
  std::vector<Json> repeats;       ///< faults that occurred more than once
};

/// The same checks as seen by each rank. `models`: device model per rank.
Story play(const std::vector<Check>& checks, std::vector<int> models = {}) {
  Story story;
  const std::size_t ranks = checks.front().all.size();
  models.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    LoadRank rank(static_cast<int>(r), models);
    rank.begin();
    for (const Check& check : checks) rank.check(check);
    if (rank.checks.found()) story.found.push_back(r);
    story.work.push_back(rank.checks.work());
    for (const Json& fault : rank.world.faults()) story.faults.push_back(fault);
    for (const Json& repeat : rank.world.records.repeats()) story.repeats.push_back(repeat);
  }
  return story;
}

/// "replay of rank 1, certain: weights".
std::vector<std::string> reported(const Story& story) {
  std::vector<std::string> lines;
  for (const Json& fault : story.faults) {
    std::string who = fault["rank"].is_null() ? "ranks" : "rank " + fault["rank"].dump();
    if (fault["rank"].is_null()) who += " " + fault["suspects"].dump();
    lines.push_back(fault["kind"].get<std::string>() + " of " + who + ", " +
                    fault["blame"].get<std::string>() + ": " + fault["where"].get<std::string>());
  }
  return lines;
}

const std::vector<std::size_t> both = {0, 1};

TEST(LoadChecks, WhatAllAnswerAlikeIsVerified) {
  const Story story = play({Check(2), Check(2)});
  EXPECT_THAT(reported(story), IsEmpty());
  EXPECT_THAT(story.found, IsEmpty());
  for (const VerifiedWork& work : story.work) {
    EXPECT_EQ(work.replica_checks, 8u) << "of the state and what is made from it, both rounds of both checks";
    EXPECT_EQ(work.replays, 4u);
    EXPECT_EQ(work.outputs_verified, 2 * 2 * asked.size());
  }
}

TEST(LoadChecks, TheRankWhoseFirstRoundDiffersLeftItsOwn) {
  for (const int ranks : {2, 3}) {
    const Story story = play({Check(ranks).with(1, {0}, weights, 5)});
    EXPECT_THAT(reported(story), ElementsAre("replay of rank 1, certain: weights"));
    EXPECT_EQ(story.found.size(), static_cast<std::size_t>(ranks)) << "all know that the test is no success";
    EXPECT_EQ(story.faults[0]["step"], 7);
    EXPECT_EQ(story.faults[0]["phase"], "train_simple_cnn_bs16");
    EXPECT_EQ(story.faults[0]["detector"], "load test digest");
    EXPECT_NE(story.faults[0]["expected"], story.faults[0]["actual"]);
  }
}

/// The contributions of a faulty rank are part of the common result on every rank.
TEST(LoadChecks, WhatAllMadeTogetherAccusesNobodyWhoseOwnItIsNot) {
  const auto together = [](int ranks) {
    Check check(ranks);
    for (int rank = 0; rank < ranks; ++rank) check.with(rank, {1}, weights, 6);
    return check.with(1, {0}, weights, 5);
  };
  EXPECT_THAT(reported(play({together(2)})),
              ElementsAre("replica of ranks [0,1], ambiguous: weights, different on ranks 0, 1"));
  EXPECT_THAT(reported(play({together(3)})), ElementsAre("replica of rank 1, majority: weights"));
  EXPECT_THAT(reported(play({together(3).with(1, {0}, weights, 6)})),
              ElementsAre("replica of rank 1, majority: weights"))
      << "it confirms what it made wrong itself";
}

TEST(LoadChecks, TheRankWhoseSecondRoundDiffersChangedAtRest) {
  for (const int ranks : {1, 2, 3}) {
    const Story story = play({Check(ranks).with(0, {1}, momentum, 5)});
    EXPECT_THAT(reported(story), ElementsAre("replica of rank 0, certain: momentum"));
    EXPECT_EQ(story.found.size(), static_cast<std::size_t>(ranks));
  }
}

TEST(LoadChecks, TwoThatDifferInBothRoundsAreSuspects) {
  const Story story = play({Check(2).with(1, both, weights, 5)});
  EXPECT_THAT(reported(story),
              ElementsAre("replica of ranks [0,1], ambiguous: weights, different on ranks 0, 1"));
  EXPECT_THAT(story.found, ElementsAre(0u, 1u));
  EXPECT_THAT(story.repeats, IsEmpty()) << "it is told once for both rounds";
}

TEST(LoadChecks, AMajorityNamesWhoDiffersInBothRounds) {
  const Story story = play({Check(3).with(2, both, weights, 5)});
  EXPECT_THAT(reported(story), ElementsAre("replica of rank 2, majority: weights"));
  EXPECT_THAT(story.repeats, IsEmpty());
}

TEST(LoadChecks, TheTensorsBehindTheFirstAreCounted) {
  const Story one = play({Check(3), Check(3).with(2, both, fc1, 5).with(2, both, fc1_gradient, 5)});
  EXPECT_THAT(reported(one),
              ElementsAre("replay of rank 2, certain: activation of fc1, and in 1 tensor made after it"));
  const Story two =
      play({Check(2), Check(2).with(0, {1}, conv1, 5).with(0, {1}, fc1, 5).with(0, {1}, fc1_gradient, 5)});
  EXPECT_THAT(reported(two),
              ElementsAre("replay of rank 0, certain: activation of conv1, and in 2 tensors made after it"));
}

TEST(LoadChecks, WhatIsMadeFromAStateInDoubtAccusesNobody) {
  const Story story = play({Check(3).with(1, {1}, weights, 5).with(0, both, embeddings, 6)});
  EXPECT_THAT(reported(story), ElementsAre("replica of rank 1, certain: weights"));
}

TEST(LoadChecks, WhatIsMadeFromARightStateNamesWhoMadeItWrong) {
  EXPECT_THAT(reported(play({Check(2).with(1, {0}, embeddings, 5)})),
              ElementsAre("replay of rank 1, certain: embeddings"));
  EXPECT_THAT(reported(play({Check(2).with(1, {1}, embeddings, 5)})),
              ElementsAre("replay of rank 1, certain: embeddings"));
  EXPECT_THAT(reported(play({Check(3).with(1, both, embeddings, 5)})),
              ElementsAre("replay of rank 1, majority: embeddings"));
}

TEST(LoadChecks, AReplayMustRepeatWhatAnEarlierCheckGave) {
  const Story story = play({Check(2), Check(2).with(1, both, conv1, 5)});
  EXPECT_THAT(reported(story), ElementsAre("replay of rank 1, certain: activation of conv1"));
  EXPECT_THAT(reported(play({Check(1), Check(1).with(0, {1}, conv1, 5)})),
              ElementsAre("replay of rank 0, certain: activation of conv1"))
      << "alone, too";
}

TEST(LoadChecks, AReplayMustRepeatTheFirstRound) {
  EXPECT_THAT(reported(play({Check(2).with(1, {1}, conv1, 5)})),
              ElementsAre("replay of rank 1, certain: activation of conv1"));
}

TEST(LoadChecks, AMajorityThatLeftItsPastIsWrong) {
  const Story story = play({Check(3), Check(3).with(0, both, conv1, 5).with(2, both, conv1, 5)});
  EXPECT_THAT(reported(story), UnorderedElementsAre("replay of rank 0, certain: activation of conv1",
                                                    "replay of rank 2, certain: activation of conv1"));
}

/// Training changes the state.
TEST(LoadChecks, TheStateMayChangeBetweenChecks) {
  Check later(2);
  for (const int rank : {0, 1}) later.with(rank, both, weights, 8).with(rank, both, embeddings, 9);
  const Story story = play({Check(2), later});
  EXPECT_THAT(reported(story), IsEmpty());
  EXPECT_THAT(story.found, IsEmpty());
}

TEST(LoadChecks, DevicesOfOtherModelsAreNotCompared) {
  Check unlike(3);
  for (std::size_t answer = 0; answer < asked.size(); ++answer) unlike.with(2, both, answer, 50 + answer);
  EXPECT_THAT(reported(play({unlike}, {0, 0, 9})), IsEmpty());
  EXPECT_THAT(reported(play({unlike, unlike}, {0, 9, 0})), Not(IsEmpty()));
  EXPECT_THAT(reported(play({unlike, Check(unlike).with(2, both, conv1, 5)}, {0, 0, 9})),
              ElementsAre("replay of rank 2, certain: activation of conv1"))
      << "with itself it is";
}

TEST(LoadChecks, AWrongRankHasVerifiedNothingOfThat) {
  const Story story = play({Check(3).with(1, {1}, weights, 5)});
  EXPECT_EQ(story.work[0].outputs_verified, story.work[2].outputs_verified);
  EXPECT_EQ(story.work[0].replica_checks, 2u)
      << "the state in both rounds; what is made from it was left out";
  EXPECT_EQ(story.work[1].replica_checks, 1u) << "the first round was right";
  EXPECT_EQ(story.work[1].outputs_verified + 2, story.work[0].outputs_verified);
  EXPECT_EQ(story.work[1].replays, 2u);
}

TEST(LoadChecks, ANewTestForgetsTheLast) {
  LoadRank rank(1, {0, 0});
  rank.begin();
  rank.check(Check(2));
  Check other(2);
  for (const int r : {0, 1}) other.with(r, both, conv1, 5);
  rank.begin();
  rank.check(other);
  EXPECT_FALSE(rank.checks.found());
  rank.check(Check(2));
  EXPECT_TRUE(rank.checks.found());
  rank.begin();
  EXPECT_FALSE(rank.checks.found());
  rank.check(Check(2));
  EXPECT_FALSE(rank.checks.found());
}

TEST(LoadChecks, WhatStrikesBetweenTheRoundsIsEnqueuedThere) {
  LoadRank rank(0, {0, 0});
  rank.begin();
  rank.check(Check(2), [&] {
    rank.job.calls.push_back(-1);
    return Status();
  });
  EXPECT_THAT(rank.job.calls, ElementsAre(0, -1, 1));
  const Status failed = rank.checks.check(rank.job, 8, [] { return Status(StatusCode::io_error, "no"); });
  EXPECT_EQ(failed.code(), StatusCode::io_error);
}

TEST(LoadChecks, MoreAnswersThanThereIsMemoryForAreRefused) {
  LoadRank rank(0, {0});
  rank.job.questions.assign(129, asked[0]);
  const Status status = rank.checks.begin(rank.job, "large");
  EXPECT_EQ(status.code(), StatusCode::internal);
  EXPECT_THAT(status.what(), HasSubstr("129 answers"));
  rank.job.questions.resize(128);
  EXPECT_TRUE(rank.checks.begin(rank.job, "large").ok());
}

TEST(LoadChecks, GoOnAfterARestart) {
  LoadRank rank(1, {0, 0});
  rank.begin();
  rank.check(Check(2));
  EXPECT_EQ(rank.checks.give_up(20).what(), "");
  EXPECT_EQ(rank.checks.prepare().what(), "");
  rank.begin();
  rank.check(Check(2));
  EXPECT_EQ(rank.checks.work().replays, 4u);
  EXPECT_THAT(rank.world.faults(), IsEmpty());
}

}  // namespace
}  // namespace egt::test
