#include "workload/common/reproducer.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "egt/core/json_access.hpp"
#include "tests/support/changed_device.hpp"
#include "tests/support/memory_fixture.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/memory/repeated_sines.hpp"
#include "workload/reproduce/repeat.hpp"
#include "workload/vote/vote_workload.hpp"

namespace egt {
namespace {

namespace fs = std::filesystem;
using test::changed;
using test::Enqueue;
using test::eventually;
using test::figure;
using test::fill_of;
using test::injections_of;
using test::small_host_device;
using test::World;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// A world with a run directory.
struct RunWorld : World {
  explicit RunWorld(std::unique_ptr<Device> a_device = small_host_device(),
                    std::vector<Injection> faults_on_purpose = {})
      : World(std::move(a_device), std::move(faults_on_purpose)) {
    std::string name = fs::temp_directory_path() / "egt_reproducer_XXXXXX";
    directory = environment.directory = mkdtemp(name.data());
  }
  ~RunWorld() { fs::remove_all(directory); }
  RunWorld(const RunWorld&) = delete;

  Reproducer read(const Json& file) const {
    std::ifstream stream(directory / file.get<std::string>());
    const auto one = parse_reproducer(std::string(std::istreambuf_iterator<char>(stream), {}));
    EXPECT_TRUE(one.ok()) << one.status().what();
    return one.ok() ? one.value() : Reproducer();
  }
  /// The text of the counts.
  std::string repeated(Device& on, const Json& file, bool strikes, int count) const {
    const Reproducer one = read(file);
    EXPECT_TRUE(check_call(one).ok());
    const auto counts = repeat(on, one, strikes, {.count = count, .seconds = 60});
    return counts.ok() ? to_text(counts.value()) : counts.status().what();
  }

  fs::path directory;
};

/// All repetitions failed, which are as many as the time allows.
MATCHER(AllFailedOnRank3, "") {
  int failed = 0, of = 0;
  return std::sscanf(arg.c_str(), "failed %d of %d on rank 3 (host): ", &failed, &of) == 2 && of > 0 &&
         failed == of;
}

Fault some_fault(const std::string& where) {
  Fault fault;
  fault.kind = "gemm";
  fault.rank = 3;
  fault.step = 7;
  fault.where = where;
  return fault;
}

const Json vote_call = to_json(UnitVote{.seed = ~std::uint64_t{0}, .iterations = 4});

TEST(Reproducer, OfAnInjectedVoteFailsEachTimeWhereItStrikes) {
  RunWorld world(small_host_device(), injections_of({"multiprocessor:rank=3,step=2,layer=1,bit=4"}));
  VoteWorkload vote(world.environment);
  ASSERT_TRUE(vote.prepare().ok());
  if (figure(vote, "voters") < 2) GTEST_SKIP() << "one CPU";
  ASSERT_TRUE(vote.enqueue({.index = 2}).ok());
  ASSERT_TRUE(vote.finish(false).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_THAT(faults, SizeIs(1));
  EXPECT_EQ(faults[0]["reproducer"], "reproduce/multiprocessor-rank3-step2.json");
  ASSERT_THAT(world.notices, SizeIs(1));
  EXPECT_THAT(world.notices[0], AllFailedOnRank3());
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(world.repeated(*world.device, faults[0]["reproducer"], true, 20), "failed 20 of 20");
    EXPECT_EQ(world.repeated(*world.device, faults[0]["reproducer"], false, 20), "failed 0 of 20");
  }
}

/// GEMMs with a wrong word, as long as it is broken.
TEST(Reproducer, OfAGemmFailsOnlyOnTheFaultyDevice) {
  std::atomic<bool> is_broken = false;
  RunWorld world(changed<Gemm>(small_host_device(), [&](const Gemm& call, const Enqueue& enqueue) -> Status {
    EGT_TRY(enqueue(call));
    if (!is_broken || call.precision != Precision::fp32) return {};
    return enqueue(FlipWords{{static_cast<std::uint32_t*>(call.d.data), 1}, {.mask = 1u << 30}});
  }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  is_broken = true;
  ASSERT_TRUE(memory.start().ok());
  std::vector<Json> faults;
  ASSERT_TRUE(eventually([&] {
    for (Json& fault : world.faults()) faults.push_back(std::move(fault));
    return !world.notices.empty();
  }));
  ASSERT_TRUE(memory.finish(true).ok());
  ASSERT_FALSE(faults.empty());
  EXPECT_THAT(world.notices[0], AllFailedOnRank3());
  const Json file = faults[0]["reproducer"];
  EXPECT_THAT(file.get<std::string>(), StartsWith("reproduce/gemm-rank3-"));
  EXPECT_EQ(world.repeated(*world.device, file, false, 10), "failed 10 of 10");
  EXPECT_EQ(world.repeated(*small_host_device(), file, false, 10), "failed 0 of 10");
}

/// The operands are those of the run: a wrong pair would give other counts of wrong results only by chance.
TEST(Reproducer, OfAGemmHasTheOperandsOfTheRun) {
  std::atomic<bool> is_started = false, is_struck = false;
  std::set<const void*> multiplied;
  RunWorld world(changed<Gemm>(small_host_device(), [&](Gemm call, const Enqueue& enqueue) {
    const bool repeats = is_started && !multiplied.insert(call.a.data).second;
    if (repeats && !is_struck.exchange(true)) call.alpha = 2;
    return enqueue(call);
  }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  is_started = true;
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return world.records.has_fault(); }));
  ASSERT_TRUE(memory.finish(true).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_FALSE(faults.empty());
  std::vector<Digest> digests;
  const auto device = changed<DigestWords>(
      small_host_device(), [&](const DigestWords& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        digests.emplace_back();
        return enqueue(Copy{&digests.back(), call.digest, sizeof(Digest)});
      });
  digests.reserve(1);
  EXPECT_EQ(world.repeated(*device, faults[0]["reproducer"], false, 1), "failed 0 of 1");
  EXPECT_THAT((std::vector<std::string>{faults[0]["expected"], faults[0]["actual"]}),
              Contains("digest 0x" + to_string(digests.at(0))));
}

/// Sines and exponentials with a wrong last word in one of both runs, as long as it is broken.
TEST(Reproducer, OfSinesFailsOnlyOnTheFaultyDevice) {
  std::atomic<bool> is_broken = false;
  RunWorld world(
      changed<SineExponential>(small_host_device(), [&](SineExponential call, const Enqueue& enqueue) {
        if (is_broken && call.words.count == 1) ++call.iterations;
        return enqueue(call);
      }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  is_broken = true;
  ASSERT_TRUE(memory.start().ok());
  std::vector<Json> faults;
  ASSERT_TRUE(eventually([&] {
    for (Json& fault : world.faults()) faults.push_back(std::move(fault));
    return !world.notices.empty();
  }));
  ASSERT_TRUE(memory.finish(false).ok());
  EXPECT_EQ(figure(memory, "mismatches"), 0u) << "the block has its content again";
  ASSERT_FALSE(faults.empty());
  EXPECT_EQ(faults[0]["kind"], "extreme");
  EXPECT_THAT(world.notices[0], AllFailedOnRank3());
  const Json file = faults[0]["reproducer"];
  EXPECT_THAT(file.get<std::string>(), StartsWith("reproduce/extreme-rank3-"));
  EXPECT_EQ(world.repeated(*world.device, file, false, 10), "failed 10 of 10");
  EXPECT_EQ(world.repeated(*small_host_device(), file, false, 10), "failed 0 of 10");
}

/// One iteration too many in every run: only the host's value differs.
TEST(Reproducer, OfSinesComparesWithTheHost) {
  RunWorld world;
  ReproducerFiles files(world.environment);
  const auto broken =
      changed<SineExponential>(small_host_device(), [](SineExponential call, const Enqueue& enqueue) {
        ++call.iterations;
        return enqueue(call);
      });
  for (const auto& [iterations, expected] : {std::pair{2, "failed 5 of 5"}, {3, "failed 0 of 5"}}) {
    Fault fault = some_fault(fmt::format("{} iterations", iterations));
    const Json call = to_json(BlockSines{.seed = 9, .first = 100, .count = 50, .iterations = iterations});
    fault.reproducer = files.emit(fault, SineExponential::name, call);
    EXPECT_EQ(world.repeated(*broken, fault.reproducer, false, 5), expected);
    EXPECT_EQ(world.repeated(*small_host_device(), fault.reproducer, false, 5), "failed 0 of 5");
  }
}

/// The operands are those of the run: the repetition has the digest of the call that was right.
TEST(Reproducer, OfSinesHasTheOperandsOfTheRun) {
  std::atomic<int> calls = -1'000'000;
  RunWorld world(
      changed<SineExponential>(small_host_device(), [&](SineExponential call, const Enqueue& enqueue) {
        if (++calls == 5) ++call.iterations;
        return enqueue(call);
      }));
  world.load.set_lead(LoadLead::products);
  MemoryWorkload memory(world.environment, fill_of(4 << 20));
  ASSERT_TRUE(memory.prepare().ok());
  calls = 0;
  ASSERT_TRUE(memory.start().ok());
  ASSERT_TRUE(eventually([&] { return world.records.has_fault(); }));
  ASSERT_TRUE(memory.finish(true).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_FALSE(faults.empty());
  Digest digest;
  int repeated = 0;
  const auto device = changed<SineExponential>(
      small_host_device(), [&](const SineExponential& call, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(call));
        return ++repeated == 1 ? enqueue(Copy{&digest, call.digest, sizeof digest}) : Status();
      });
  EXPECT_EQ(world.repeated(*device, faults[0]["reproducer"], false, 1), "failed 0 of 1");
  EXPECT_THAT((std::vector<std::string>{faults[0]["expected"], faults[0]["actual"]}),
              Contains("digest 0x" + to_string(digest)));
}

TEST(Reproducer, RareAndTinyErrorsAreCounted) {
  RunWorld world;
  ReproducerFiles files(world.environment);
  Fault fault = some_fault("block 1");
  const Json call = {{"precision", "fp32"},         {"rows", 64}, {"inner", 64}, {"pair", 1},
                     {"operands", "mantissa of a"}, {"seed", 5}};
  fault.reproducer = files.emit(fault, Gemm::name, call);
  int calls = 0;
  const auto device =
      changed<Gemm>(small_host_device(), [&](const Gemm& gemm, const Enqueue& enqueue) -> Status {
        EGT_TRY(enqueue(gemm));
        if (++calls % 10 != 1) return {};
        return enqueue(FlipWords{{static_cast<std::uint32_t*>(gemm.d.data), 1}, {.mask = 1}});
      });
  EXPECT_EQ(world.repeated(*device, fault.reproducer, false, 30), "failed 3 of 30");
}

TEST(Reproducer, EachPlaceHasAFileUpToALimit) {
  RunWorld world;
  ReproducerFiles files(world.environment);
  for (int time = 0; time < 2; ++time)
    for (int place = 0; place < 20; ++place) {
      Fault fault = some_fault(fmt::format("block {}", place));
      fault.reproducer = files.emit(fault, UnitVote::name, vote_call);
      EXPECT_EQ(fault.reproducer.empty(), time > 0 || place >= 16);
    }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(world.directory / "reproduce"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names, SizeIs(16));
  EXPECT_THAT(names, Contains("gemm-rank3-step7.json"));
  EXPECT_THAT(names, Contains("gemm-rank3-step7-16.json"));
}

TEST(Reproducer, AFileThatCannotBeWrittenIsAWarning) {
  RunWorld world;
  std::ofstream(world.directory / "reproduce") << "not a folder";
  ReproducerFiles files(world.environment);
  Fault fault = some_fault("block 1");
  fault.reproducer = files.emit(fault, UnitVote::name, vote_call);
  std::vector<RecordKind> kinds;
  for (const Record& record : world.records.drain()) {
    kinds.push_back(record.kind);
    if (record.kind == RecordKind::notice) world.notices.push_back(record.body["text"]);
  }
  EXPECT_THAT(kinds, ElementsAre(RecordKind::fault, RecordKind::notice))
      << "a disk may hang: the fault first";
  EXPECT_THAT(world.notices, ElementsAre(StartsWith("no reproducer of a gemm fault: ")));
}

TEST(Reproducer, ADamagedFileIsRejected) {
  const Json good = to_json(Reproducer{.operation = UnitVote::name,
                                       .call = vote_call,
                                       .fault = to_json(some_fault("block 1")),
                                       .device_model = "",
                                       .host_id = ""});
  const auto check = [](const std::string& text) {
    const auto read = parse_reproducer(text);
    return read.ok() ? check_call(read.value()) : read.status();
  };
  ASSERT_TRUE(check(good.dump()).ok());
  const std::string text = good.dump();
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_EQ(check(text.substr(0, length)).code(), StatusCode::invalid_argument) << length;
  const std::vector<std::pair<const char*, Json>> changes = {
      {"/format", 2},
      {"/format", "1"},
      {"/operation", "fill"},
      {"/call", nullptr},
      {"/call/seed", -1},
      {"/call/seed", 1e300},
      {"/call/iterations", 0},
      {"/call/iterations", ~std::uint64_t{0}},
      {"/call/fault", {{"voter", 1024}, {"part", 0}, {"unit", 0}, {"mask", 1}}},
      {"/call/fault", "none"},
      {"/fault/rank", nullptr},
      {"/fault/kind", 5},
      {"/local_rank", -1},
  };
  for (const auto& [place, value] : changes) {
    Json damaged = good;
    damaged[Json::json_pointer(place)] = value;
    const Status status = check(damaged.dump());
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << place << value;
    EXPECT_THAT(status.what(), StartsWith("is no reproducer: "));
  }
}

/// The files of this rank, of its neighbour's node, and of another model are not repeated.
TEST(Reproducer, TheNextRankOfTheNodeRepeatsIt) {
  for (const bool is_same_model : {true, false}) {
    RunWorld faulty;
    faulty.place.local_rank = 2, faulty.place.local_size = 4;
    ReproducerFiles files(faulty.environment);
    Fault fault = some_fault("block 1");
    fault.reproducer = files.emit(fault, UnitVote::name, vote_call);
    std::vector<int> repeated;
    for (int local_rank = 0; local_rank < 4; ++local_rank) {
      RunWorld world;
      world.place.local_rank = local_rank, world.place.local_size = 4;
      world.environment.directory = faulty.directory;
      if (!is_same_model) world.environment.device_model = "another device";
      repeat_for_peer(world.environment, 60, [] { return false; });
      for (const Record& record : world.records.drain()) {
        EXPECT_EQ(member(record.body, "reproducer"), fault.reproducer) << "or a single CPU";
        repeated.push_back(local_rank);
      }
      repeat_for_peer(world.environment, 60, [] { return true; });
      EXPECT_THAT(world.records.drain(), IsEmpty()) << "stopped";
    }
    EXPECT_EQ(repeated, is_same_model ? std::vector<int>{3} : std::vector<int>{});
  }
}

TEST(Reproducer, RepetitionsEndInTimeAndWithAStop) {
  int calls = 0;
  const auto wrong = [&]() -> Result<bool> { return ++calls % 2 == 0; };
  EXPECT_EQ(to_text(repeat({.count = 5}, wrong).value()), "failed 3 of 5");
  EXPECT_EQ(to_text(repeat({.seconds = 0}, wrong).value()), "failed 0 of 0");
  EXPECT_EQ(to_text(repeat({.is_stopped = [&] { return calls == 7; }}, wrong).value()), "failed 1 of 2");
  const auto stopped = [&]() -> Result<bool> {
    return ++calls > 8 ? Result<bool>(Status(StatusCode::stopped, "stop")) : Result<bool>(true);
  };
  EXPECT_EQ(to_text(repeat({}, stopped).value()), "failed 0 of 1");
  const auto failing = []() -> Result<bool> { return Status(StatusCode::timeout, "slow"); };
  EXPECT_EQ(repeat({}, failing).status().code(), StatusCode::timeout);
}

}  // namespace
}  // namespace egt
