#include <gmock/gmock.h>

#include "judge/verdict.hpp"
#include "tests/support/record_fixtures.hpp"

/// Complete sets of records, each with its exact verdict and reasons.
namespace egt {
namespace {

using namespace fixtures;

/// One set of records and its exact expected outcome.
struct Fixture {
  const char* name;
  std::vector<Record> records;
  const char* verdict;
  int exit_code;
  std::vector<std::string> reasons;
};

void PrintTo(const Fixture& fixture, std::ostream* stream) {
  *stream << fixture.name;
}

using Records = std::vector<Record>;

Records with(Records records, const Records& more) {
  records.insert(records.end(), more.begin(), more.end());
  return records;
}

Records without(Records records, RecordKind kind, int rank) {
  remove(records, kind, rank);
  return records;
}

/// Changes the end reason of the rank.
Records ending(Records records, int rank, const std::string& reason) {
  find(records, RecordKind::end, rank) = end(rank, reason);
  return records;
}

Records failing(Records records, int rank, const std::string& part, const std::string& failure) {
  for (Json& one : find(records, RecordKind::end, rank).body["parts"])
    if (one["name"] == part) one.update({{"success", false}, {"failure", failure}});
  return records;
}

Records asking(Records records, const std::vector<std::string>& specs, bool struck = true) {
  ask_for(records, specs);
  if (struck)
    for (const std::string& spec : specs) records.push_back(injection(spec));
  return records;
}

/// Sets a limiter metric in a rank's end record.
Records guarding(Records records, int rank, const char* figure, double value) {
  find(records, RecordKind::end, rank).body["telemetry"]["guard"] = {{figure, value}};
  return records;
}

/// The other two of three ranks could not continue without `rank`, which left no end record.
Records losing(int rank, Loss::How how) {
  Records records = without(good_run(3), RecordKind::end, rank);
  for (int other = 0; other < 3; ++other) {
    if (other == rank) continue;
    records = ending(records, other, "peer lost");
    for (Json& part : find(records, RecordKind::end, other).body["parts"]) part["success"] = false;
    records.push_back(loss(rank, how, other, 1020 + other));
  }
  return records;
}

/// Four ranks on two nodes: the ranks of each node, or only of the first, report those of the other as lost.
Records cut_apart(bool told_by_both) {
  Records records = {start(0, 4), start(1, 4), start(2, 4), start(3, 4)};
  for (int reporter = 0; reporter < 4; ++reporter)
    for (const int other : reporter < 2 ? std::vector{2, 3} : std::vector{0, 1}) {
      if (reporter >= 2 && !told_by_both) continue;
      records.push_back(loss(other, Loss::How::silent, reporter, 1020 + reporter));
      records.back().body["hostname"] = other < 2 ? "node1" : "node2";
    }
  return records;
}

Record fault_of(const std::string& kind, int rank) {
  Record record = fault(rank);
  record.body.update({{"kind", kind}, {"where", ""}});
  return record;
}

Record seen_in(Record record, const char* phase) {
  record.body["phase"] = phase;
  return record;
}

Record failed_loss(int rank, const std::string& text) {
  Record record = loss(rank, Loss::How::failed);
  record.body["text"] = text;
  return record;
}

constexpr const char* all_done_2 = "all planned work was done and verified on 2 ranks";
constexpr const char* stuck_1 = "rank 1 on node1 is stuck: no progress for 4.1 s, in train: sums, step 20";
constexpr const char* silent_1 =
    "rank 1 on node1 does not answer for 4.1 s: its process is stopped, or its host or the network to it is "
    "gone, in train: sums, step 20";
constexpr const char* silent_of_node2 =
    "does not answer for 4.1 s: its process is stopped, or its host or the network to it is gone, in train: "
    "sums, step 20";
constexpr const char* vanished_1 =
    "rank 1 on node1 vanished: its process ended without a word, in train: sums, step 20";
constexpr const char* slow_1 = "rank 1 on node1: step time 5.2 % above the median of its peers";
constexpr const char* fault_1 = "GPU 1, UUID GPU-1: memory fault in block 3; rank 1, step 40";

std::vector<Fixture> losses_and_restarts() {
  const auto stuck = Loss::How::stuck, silent = Loss::How::silent, vanished = Loss::How::vanished;
  return {
      {"stuck", losing(1, stuck), "incomplete", 4, {stuck_1}},
      {"silent", losing(1, silent), "incomplete", 4, {silent_1}},
      {"vanished", losing(1, vanished), "incomplete", 4, {vanished_1}},
      {"cut apart",
       cut_apart(true),
       "incomplete",
       4,
       {"ranks 0, 1 on node1 and ranks 2, 3 on node2 did not hear each other for 4.1 s: the network between "
        "them"}},
      {"cut apart, and one is stuck besides",
       with(cut_apart(true), {loss(4, stuck)}),
       "incomplete",
       4,
       {"ranks 0, 1 on node1 and ranks 2, 3 on node2 did not hear each other for 4.1 s: the network between "
        "them",
        "rank 4 on node1 is stuck: no progress for 4.1 s, in train: sums, step 20"}},
      {"a silent node",
       cut_apart(false),
       "incomplete",
       4,
       {std::string("rank 2 on node2 ") + silent_of_node2,
        std::string("rank 3 on node2 ") + silent_of_node2}},
      {"two that call each other silent, and a third that calls both so",
       with(good_run(3), {loss(1, silent, 0), loss(0, silent, 1), loss(2, silent, 1), loss(1, silent, 2)}),
       "incomplete",
       4,
       {"ranks 0, 2 on node1 and rank 1 on node1 did not hear each other for 4.1 s: the network between "
        "them"}},
      {"silent, and told so by itself when it woke up",
       with(ending(good_run(2), 1, "peer lost"), {loss(1, silent, 1)}),
       "incomplete",
       4,
       {silent_1}},
      {"failed",
       with(good_run(2), {failed_loss(1, "no space is left")}),
       "incomplete",
       4,
       {"rank 1 on node1 failed, in train: sums, step 20: no space is left"}},
      {"lost with an end of its own",
       with(ending(good_run(2), 0, "peer lost"), {loss(1)}),
       "incomplete",
       4,
       {stuck_1}},
      {"lost and broken",
       with(Records{start(0, 2), start(1, 2), end(0, "peer lost"), failed_end(1, StatusCode::no_space, 5)},
            {failed_loss(1, "no space is left")}),
       "incomplete",
       4,
       {"rank 1 on node1 failed, in train: sums, step 20: no space is left"}},
      {"lost before the first step for want of memory",
       {start(0, 2), start(1, 2), failed_end(0, StatusCode::aborted, 0),
        failed_end(1, StatusCode::out_of_memory, 0), failed_loss(1, "16 GB are missing")},
       "incomplete",
       3,
       {"rank 1 on node1 failed, in train: sums, step 20: 16 GB are missing"}},
      {"two lost",
       with(losing(1, stuck), {loss(2, vanished, 0, 1021)}),
       "incomplete",
       4,
       {stuck_1, "rank 2 on node1 vanished: its process ended without a word, in train: sums, step 20"}},
      {"nobody left an end",
       with(without(without(good_run(2), RecordKind::end, 0), RecordKind::end, 1), {loss(1)}),
       "incomplete",
       4,
       {stuck_1}},
      {"aborted because of the loss",
       with(Records{start(0, 2), start(1, 2), failed_end(0, StatusCode::aborted, 20)}, {loss(1)}),
       "incomplete",
       4,
       {stuck_1}},
      {"an error of its own beside the loss",
       with(Records{start(0, 2), start(1, 2), failed_end(0, StatusCode::io_error, 20)}, {loss(1)}),
       "incomplete",
       4,
       {stuck_1, "rank 0, step 19: input/output error: it did not work"}},
      {"a fault before the loss", with(losing(1, stuck), {fault(1)}), "fault", 1, {fault_1, stuck_1}},
      {"a finding before the loss", with(losing(1, stuck), {finding(1)}), "incomplete", 4, {stuck_1, slow_1}},
      {"a signal after the loss",
       with(ending(good_run(2), 0, "signal"), {loss(1)}),
       "incomplete",
       4,
       {stuck_1, "stopped by SIGTERM, step 99"}},
      {"one restart",
       with(good_run(2), {restart(1), restart(1, 1, 1)}),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, after 1 restart"}},
      {"two restarts",
       with(good_run(2), {restart(1), restart(0, 2)}),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, after 2 restarts"}},
      {"a restart, then lost", with(losing(1, stuck), {restart(1)}), "incomplete", 4, {stuck_1}},
      {"a restart and a fault", with(good_run(2), {restart(1), fault(1)}), "fault", 1, {fault_1}},
      {"last seen in a phase",
       {start(0, 2), start(1, 2), seen_in(progress(0), "train: sums"), progress(1, 0), end(0)},
       "incomplete",
       4,
       {"rank 1 was lost: it left no end record; last seen before the first step"}},
      {"stopped and cut",
       {start(0, 2), start(1, 2), seen_in(progress(0), "check"), late_stop(0, true), late_stop(1)},
       "incomplete",
       4,
       {"rank 0 was lost: it left no end record; after SIGINT it waited for others in train: sums for 6.6 s, "
        "at step 20",
        "rank 1 was lost: it left no end record; after SIGINT it was in train: sums for 6.6 s, at step 20"}},
      {"stopped late",
       with(ending(good_run(2), 0, "signal"), {late_stop(0), late_stop(1)}),
       "interrupted",
       6,
       {"stopped by SIGTERM, step 99"}},
      {"all cut at once",
       {start(0, 2), start(1, 2), seen_in(progress(0), "train: sums"), seen_in(progress(1), "check")},
       "incomplete",
       4,
       {"rank 0 was lost: it left no end record; last seen in train: sums, at step 99",
        "rank 1 was lost: it left no end record; last seen in check, at step 99"}},
  };
}

std::vector<Fixture> findings() {
  return {
      {"an outlier", with(good_run(2), {finding(1)}), "degraded", 5, {slow_1}},
      {"the same twice", with(good_run(2), {finding(1), finding(1)}), "degraded", 5, {slow_1}},
      {"two figures of one rank",
       with(good_run(2), {finding(1), finding(1, "outlier", "power")}),
       "degraded",
       5,
       {slow_1, "rank 1 on node1: power 5.2 % above the median of its peers"}},
      {"of all ranks",
       with(good_run(2), {finding(-1, "throttle", "clocks")}),
       "degraded",
       5,
       {"clocks 5.2 % above the median of its peers"}},
      {"with a fault", with(good_run(2), {finding(1), fault(1)}), "fault", 1, {fault_1, slow_1}},
      {"with an unfinished part",
       with(failing(good_run(2), 0, "memory", "half of it"), {finding(1)}),
       "incomplete",
       4,
       {"rank 0, memory: half of it", slow_1}},
      {"with a signal",
       with(ending(good_run(2), 0, "signal"), {finding(1)}),
       "degraded",
       5,
       {slow_1, "stopped by SIGTERM, step 99"}},
      {"with a restart", with(good_run(2), {finding(1), restart(1)}), "degraded", 5, {slow_1}},
  };
}

std::vector<Fixture> injections() {
  const auto one = [](const char* spec) { return asking(good_run(2), {spec}); };
  const auto missed = [](const char* what) { return std::string("injected fault not found: ") + what; };
  return {
      {"a stall, one restart",
       with(one("hang:rank=1,step=20,ms=4000"), {restart(1)}),
       "pass",
       0,
       {says_nothing, "all planned work was done and verified on 2 ranks, after 1 restart"}},
      {"a restart because of another",
       with(one("hang:rank=1,step=20,ms=4000"), {restart(0)}),
       "incomplete",
       4,
       {says_nothing, missed("hang on rank 1, step 20")}},
      {"a stall that nobody noticed",
       one("stop:rank=1,step=20,ms=100"),
       "incomplete",
       4,
       {says_nothing, missed("stop on rank 1, step 20")}},
      {"hang",
       with(losing(1, Loss::How::stuck), {injection("hang:rank=1,step=20")}),
       "incomplete",
       4,
       {says_nothing, stuck_1}},
      {"stop",
       with(losing(1, Loss::How::silent), {injection("stop:rank=1,step=20")}),
       "incomplete",
       4,
       {says_nothing, silent_1}},
      {"kill",
       with(losing(1, Loss::How::vanished), {injection("kill:rank=1,step=20")}),
       "incomplete",
       4,
       {says_nothing, vanished_1}},
      {"kill without a survivor",
       without(asking(good_run(1), {"kill:rank=0,step=20"}), RecordKind::end, 0),
       "incomplete",
       4,
       {says_nothing, "rank 0 was lost: it left no end record; last seen at step 99"}},
      {"hang blamed on another",
       with(losing(1, Loss::How::stuck), {injection("hang:rank=0,step=20")}),
       "incomplete",
       4,
       {says_nothing, missed("hang on rank 0, step 20"), stuck_1}},
      {"slow", with(one("slow:rank=1,step=20"), {finding(1)}), "degraded", 5, {says_nothing, slow_1}},
      {"slow, another named",
       with(one("slow:rank=0,step=20"), {finding(1)}),
       "incomplete",
       4,
       {says_nothing, missed("slow on rank 0, step 20: a slow rank is reported after 60 s; run longer"),
        slow_1}},
      {"heat that the guard held",
       guarding(one("temperature:rank=1,step=20"), 1, "heat_seconds", 3),
       "pass",
       0,
       {says_nothing, all_done_2}},
      {"heat beyond policy",
       with(one("temperature:rank=1,step=20"), {finding(1, "temperature", "heat")}),
       "degraded",
       5,
       {says_nothing, "rank 1 on node1: heat 5.2 % above the median of its peers"}},
      {"heat that nobody saw",
       guarding(one("temperature:rank=1,step=20"), 0, "heat_seconds", 3),
       "incomplete",
       4,
       {says_nothing, missed("temperature on rank 1, step 20")}},
      {"memory pressure",
       guarding(one("memory-pressure:rank=0,step=20"), 0, "memory_steps", 1),
       "pass",
       0,
       {says_nothing, all_done_2}},
      {"memory pressure unseen",
       one("memory-pressure:rank=0,step=20"),
       "incomplete",
       4,
       {says_nothing, missed("memory-pressure on rank 0, step 20")}},
      {"xid",
       with(one("xid:rank=1,step=20"), {fault_of("xid", 1)}),
       "fault",
       1,
       {says_nothing, "GPU 1, UUID GPU-1: xid fault; rank 1, step 40"}},
      {"xid of another rank",
       with(one("xid:rank=0,step=20"), {fault_of("xid", 1)}),
       "fault",
       1,
       {says_nothing, "GPU 1, UUID GPU-1: xid fault; rank 1, step 40", missed("xid on rank 0, step 20")}},
      {"ecc",
       with(one("ecc:rank=1,step=20"), {fault_of("ecc", 1)}),
       "fault",
       1,
       {says_nothing, "GPU 1, UUID GPU-1: ecc fault; rank 1, step 40"}},
      {"ecc unseen",
       one("ecc:rank=1,step=20"),
       "incomplete",
       4,
       {says_nothing, missed("ecc on rank 1, step 20")}},
      {"never struck",
       asking(good_run(2), {"hang:rank=1,step=500"}, false),
       "incomplete",
       4,
       {says_nothing, "injected fault never struck: hang on rank 1, step 500: the run was too short"}},
      {"one that changes data beside a stall",
       with(asking(good_run(2), {"hang:rank=1,step=20,ms=4000", "memory:rank=1,step=20"}),
            {restart(1), fault(1)}),
       "fault",
       1,
       {says_nothing, fault_1}},
  };
}

Records full_disk(int rank) {
  Records records = asking(good_run(2), {"diskfull:rank=1,step=20"});
  PartReport io;
  io.name = "io";
  io.success = false;
  io.failure = "no space is left in .";
  find(records, RecordKind::end, rank).body["parts"].push_back(part_to_json(io));
  return records;
}

std::vector<Fixture> full_disks() {
  return {
      {"full disk", full_disk(1), "incomplete", 4, {says_nothing, "rank 1, io: no space is left in ."}},
      {"full disk of another",
       full_disk(0),
       "incomplete",
       4,
       {says_nothing, "injected fault not found: diskfull on rank 1, step 20",
        "rank 0, io: no space is left in ."}},
  };
}

std::vector<Fixture> resumed_runs() {
  const Records cut = {start(0, 2), start(1, 2), progress(0, 40), progress(1, 40)};
  return {
      {"cut and resumed",
       resumed(cut, 2),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, in 2 parts"}},
      {"a fault before the cut", resumed(with(cut, {fault(1)}), 2), "fault", 1, {fault_1}},
      {"a finding before the cut", resumed(with(cut, {finding(1)}), 2), "degraded", 5, {slow_1}},
      {"a loss before the cut", resumed(with(cut, {loss(1)}), 2), "incomplete", 4, {stuck_1}},
      {"interrupted, then resumed",
       resumed(ending(ending(good_run(2), 0, "signal"), 1, "signal"), 2),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, in 2 parts"}},
      {"cut again",
       without(resumed(cut, 2), RecordKind::end, 1),
       "incomplete",
       4,
       {"rank 1 was lost: it left no end record; last seen at step 99"}},
      {"cut twice",
       resumed(resumed(cut, 2), 2, 2),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, in 3 parts"}},
      {"a restart in each part",
       resumed(with(cut, {restart(1)}), 2),
       "pass",
       0,
       {"all planned work was done and verified on 2 ranks, in 2 parts, after 1 restart"}},
  };
}

class RecordFixtures : public testing::TestWithParam<Fixture> {};

TEST_P(RecordFixtures, GiveExactlyThisVerdict) {
  const Verdict verdict = judge(GetParam().records);
  EXPECT_EQ(verdict.name, GetParam().verdict);
  EXPECT_EQ(verdict.exit_code, GetParam().exit_code);
  EXPECT_EQ(verdict.reasons, GetParam().reasons);
}

INSTANTIATE_TEST_SUITE_P(Losses, RecordFixtures, testing::ValuesIn(losses_and_restarts()));
INSTANTIATE_TEST_SUITE_P(Findings, RecordFixtures, testing::ValuesIn(findings()));
INSTANTIATE_TEST_SUITE_P(Injections, RecordFixtures, testing::ValuesIn(injections()));
INSTANTIATE_TEST_SUITE_P(FullDisks, RecordFixtures, testing::ValuesIn(full_disks()));
INSTANTIATE_TEST_SUITE_P(Resumed, RecordFixtures, testing::ValuesIn(resumed_runs()));

}  // namespace
}  // namespace egt
