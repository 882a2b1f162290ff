#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/changed_device.hpp"
#include "tests/support/fake_disk.hpp"
#include "tests/support/workload_fixture.hpp"
#include "workload/file/file_workload.hpp"
#include "workload/file/injecting_file_layer.hpp"

namespace egt {
namespace {

using test::eventually;
using test::FakeDisk;
using test::FakeFileLayer;
using test::World;
using ::testing::HasSubstr;

constexpr std::uint64_t block_bytes = 4096;
constexpr std::uint64_t blocks_of_first = 38;  ///< of 75; the second file has 37

class FilePassTest : public ::testing::Test {
 protected:
  void prepare(std::uint64_t chunk_bytes, bool direct, std::uint64_t blocks = 75) {
    disk_.direct = direct;
    pass_.reset();
    world_ = std::make_unique<World>();  // a record queue suppresses faults that it already reported
    pass_ = std::make_unique<FilePass>(
        world_->environment, layer_,
        FilePass::Plan{.paths = {"a", "b"}, .bytes = blocks * block_bytes, .chunk_bytes = chunk_bytes});
    ASSERT_TRUE(pass_->prepare().ok());
    pass_->set_step(11);
  }
  void run(int passes) {
    for (int i = 0; i < passes; ++i) ASSERT_TRUE(pass_->run({}).ok());
  }

  std::unique_ptr<World> world_;
  FakeDisk disk_;
  FakeFileLayer layer_{disk_};
  std::unique_ptr<FilePass> pass_;
};

/// Changes block `block` of `now`, which held `before`; returns the expected location of the fault.
struct Damage {
  const char* kind;
  std::uint64_t (*make)(FakeDisk::Content& now, const FakeDisk::Content& before, std::uint64_t block);
};

char* at(FakeDisk::Content& content, std::uint64_t block) {
  return content.data() + block * block_bytes;
}

const char* at(const FakeDisk::Content& content, std::uint64_t block) {
  return content.data() + block * block_bytes;
}

template <int byte>
std::uint64_t flip_bit(FakeDisk::Content& now, const FakeDisk::Content&, std::uint64_t block) {
  at(now, block)[byte] ^= 0x20;
  return block * block_bytes + byte / 4 * 4;
}

std::uint64_t keep_old(FakeDisk::Content& now, const FakeDisk::Content& before, std::uint64_t block) {
  std::copy_n(at(before, block), block_bytes, at(now, block));
  return block * block_bytes;
}

std::uint64_t tear(FakeDisk::Content& now, const FakeDisk::Content& before, std::uint64_t block) {
  std::copy_n(at(before, block) + 1536, block_bytes - 1536, at(now, block) + 1536);
  return block * block_bytes;
}

std::uint64_t misplace(FakeDisk::Content& now, const FakeDisk::Content& before, std::uint64_t block) {
  const std::uint64_t own = block == 0 ? 1 : block - 1;
  std::copy_n(at(now, own), block_bytes, at(now, block));
  std::copy_n(at(before, own), block_bytes, at(now, own));
  return block * block_bytes;
}

std::uint64_t lose(FakeDisk::Content& now, const FakeDisk::Content&, std::uint64_t block) {
  std::fill_n(at(now, block), block_bytes, '\0');
  return block * block_bytes;
}

std::uint64_t cut(FakeDisk::Content& now, const FakeDisk::Content&, std::uint64_t block) {
  now.resize(block * block_bytes);
  return block * block_bytes;
}

class FileFaultTest : public FilePassTest,
                      public ::testing::WithParamInterface<std::tuple<Damage, std::uint64_t /*block*/>> {
 protected:
  /// Four passes, the second of which damages the first file; returns the location.
  std::uint64_t suffer(bool direct, std::uint64_t chunk_bytes) {
    const auto& [damage, block] = GetParam();
    int writes = 0;
    std::uint64_t offset = 0;
    disk_.files.clear();
    disk_.written = [&, make = damage.make, block = block](const std::string& path, const auto& before) {
      if (path == "a" && ++writes == 2) offset = make(disk_.files["a"], before, block);
    };
    prepare(chunk_bytes, direct);
    run(4);
    return offset;
  }
};

TEST_P(FileFaultTest, IsFoundOnceAndToldApart) {
  const auto& [damage, block] = GetParam();
  const bool truncated = damage.kind == std::string("file-truncated");
  for (const bool direct : {false, true})
    for (const std::uint64_t chunk_bytes : {block_bytes, 5 * block_bytes, std::uint64_t{1} << 20}) {
      SCOPED_TRACE(chunk_bytes);
      const std::uint64_t offset = suffer(direct, chunk_bytes);
      const std::vector<Json> faults = world_->faults();
      ASSERT_EQ(faults.size(), 1u);
      EXPECT_EQ(faults[0]["kind"], damage.kind);
      EXPECT_EQ(faults[0]["detector"], "file read-back");
      EXPECT_EQ(faults[0]["offset"], offset);
      EXPECT_EQ(faults[0]["rank"], 3);
      EXPECT_EQ(faults[0]["step"], 11);
      EXPECT_EQ(faults[0]["blame"], "certain");
      EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("a, pass 2: "));
      EXPECT_EQ(faults[0]["count"], truncated ? blocks_of_first - block : 1);
      EXPECT_LT(pass_->figures().bytes_right, 4 * 75 * block_bytes);
    }
}

std::string name_of(const ::testing::TestParamInfo<FileFaultTest::ParamType>& of) {
  std::string name = std::get<Damage>(of.param).kind + std::string("_block") +
                     std::to_string(std::get<std::uint64_t>(of.param)) + "_" + std::to_string(of.index);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    All, FileFaultTest,
    ::testing::Combine(::testing::Values(Damage{"file-bit", flip_bit<3>}, Damage{"file-bit", flip_bit<2000>},
                                         Damage{"file-bit", flip_bit<4095>}, Damage{"file-stale", keep_old},
                                         Damage{"file-torn", tear}, Damage{"file-misplaced", misplace},
                                         Damage{"file-lost", lose}, Damage{"file-truncated", cut}),
                       ::testing::Values(0, blocks_of_first / 2, blocks_of_first - 1)),
    name_of);

TEST_F(FilePassTest, ALostOrTornBlockOfANewFileIsTold) {
  int writes = 0;
  disk_.written = [&](const std::string& path, const auto&) {
    if (writes++ > 1) return;
    FakeDisk::Content& now = disk_.files[path];
    std::fill(at(now, 7) + (path == "a" ? 0 : 2048), at(now, 8), '\0');
  };
  prepare(5 * block_bytes, true);
  run(2);
  const std::vector<Json> faults = world_->faults();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0]["kind"], "file-lost");
  EXPECT_EQ(faults[1]["kind"], "file-torn");
  const FileFigures figures = pass_->figures();
  EXPECT_EQ(figures.bytes_right, (2 * 75 - 2) * block_bytes);
  EXPECT_EQ(figures.wrong_blocks[static_cast<std::size_t>(FileFault::lost)], 1u);
  EXPECT_EQ(figures.wrong_blocks[static_cast<std::size_t>(FileFault::torn)], 1u);
}

TEST_F(FilePassTest, ExchangedFilesAreOneIncident) {
  for (const char* const after : {"a", "b"}) {
    int writes = 0;
    disk_.written = [&](const std::string& path, const auto&) {
      if (path == after && ++writes == 2) std::swap(disk_.files["a"], disk_.files["b"]);
    };
    prepare(5 * block_bytes, true);
    run(4);
    const std::vector<Json> faults = world_->faults();
    ASSERT_EQ(faults.size(), 1u) << after;
    EXPECT_EQ(faults[0]["kind"], "file-swapped");
    EXPECT_EQ(faults[0]["count"], 37);
    EXPECT_EQ(faults[0]["offset"], 0);
    disk_.files.clear();
  }
}

TEST_F(FilePassTest, ABlockOfTheOtherFileIsSwapped) {
  disk_.written = [&](const std::string& path, const auto&) {
    if (path == "b" && pass_->figures().passes == 1)
      std::copy_n(at(disk_.files["a"], 36), block_bytes, at(disk_.files["b"], 36));
  };
  prepare(5 * block_bytes, true);
  run(3);
  const std::vector<Json> faults = world_->faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "file-swapped");
  EXPECT_EQ(faults[0]["offset"], 36 * block_bytes);
  EXPECT_THAT(faults[0]["where"].get<std::string>(),
              HasSubstr("block 36 is that of rank 3, file 0, instead of file 1"));
}

TEST_F(FilePassTest, AWholeStaleFileIsOneIncident) {
  disk_.written = [&](const std::string& path, const auto& before) {
    if (pass_->figures().passes == 2) disk_.files[path] = before;
  };
  prepare(5 * block_bytes, true);
  run(4);
  const std::vector<Json> faults = world_->faults();
  ASSERT_EQ(faults.size(), 2u) << "one a file";
  EXPECT_EQ(faults[0]["kind"], "file-stale");
  EXPECT_EQ(faults[0]["count"], 38);
  EXPECT_EQ(faults[1]["count"], 37);
  EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("holds generation 2 instead of 3"));
  EXPECT_EQ(pass_->figures().bytes_right, 3 * 75 * block_bytes);
}

TEST_F(FilePassTest, TwoKindsOfFaultAreTwoIncidents) {
  disk_.written = [&](const std::string& path, const auto& before) {
    if (path != "a" || pass_->figures().passes != 1) return;
    for (const std::uint64_t block : {3, 9, 20}) flip_bit<40>(disk_.files["a"], before, block);
    keep_old(disk_.files["a"], before, 5);
  };
  prepare(5 * block_bytes, true);
  run(3);
  const std::vector<Json> faults = world_->faults();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0]["kind"], "file-bit");
  EXPECT_EQ(faults[0]["offset"], 3 * block_bytes + 40);
  EXPECT_EQ(faults[0]["count"], 3);
  EXPECT_EQ(faults[0]["xor"], "0x00000020");
  EXPECT_EQ(faults[1]["kind"], "file-stale");
}

TEST_F(FilePassTest, WhatGoesWrongAfterItWasVerifiedIsFoundBeforeItIsRewritten) {
  disk_.opening = [&](const std::string& path, FileAccess access) {
    if (path == "b" && access == FileAccess::rewrite && pass_->figures().passes == 1)
      flip_bit<1000>(disk_.files["a"], {}, 30);
  };
  prepare(1 << 20, true);
  run(4);
  const std::vector<Json> faults = world_->faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "file-bit");
  EXPECT_EQ(faults[0]["detector"], "file re-read");
  EXPECT_THAT(faults[0]["where"].get<std::string>(), HasSubstr("a, pass 3: block 30"));
  EXPECT_EQ(pass_->figures().bytes_right, 4 * 75 * block_bytes) << "each was right when it was read back";
}

TEST_F(FilePassTest, EveryChunkHasItsTurnToBeReadAgain) {
  disk_.opening = [&](const std::string& path, FileAccess access) {
    if (path == "b" && access == FileAccess::rewrite) flip_bit<1000>(disk_.files["a"], {}, 30);
  };
  prepare(block_bytes, true);
  run(120);
  EXPECT_GE(world_->faults().size(), 3u) << "five of 38 chunks at a time";
}

TEST_F(FilePassTest, NoFalseAlarm) {
  for (const std::uint64_t blocks : {1, 2, 3, 75})
    for (const std::uint64_t chunk_bytes : {block_bytes, 5 * block_bytes, std::uint64_t{1} << 20})
      for (const bool direct : {false, true}) {
        disk_.files.clear();
        prepare(chunk_bytes, direct, blocks);
        run(20);
        EXPECT_TRUE(world_->faults().empty());
        const FileFigures figures = pass_->figures();
        EXPECT_EQ(figures.bytes_right, 20 * blocks * block_bytes);
        EXPECT_EQ(figures.bytes_written, 20 * blocks * block_bytes);
        EXPECT_GT(figures.bytes_reread, 0u);
        EXPECT_EQ(figures.mismatches, 0u);
        EXPECT_EQ(figures.direct_io, direct);
      }
}

TEST(FileOnALossyDevice, AWordThatIsWrongOnlyOnTheDeviceIsTheCopysFault) {
  // Corrupts a word between the host's copy and the device's verification.
  World world(test::changed<Verify>(test::small_host_device(),
                                    [](const Verify& call, const test::Enqueue& enqueue) -> Status {
                                      EGT_TRY(enqueue(FlipWords{call.words, {.first = 2, .mask = 8}}));
                                      return enqueue(call);
                                    }));
  FakeDisk disk;
  FakeFileLayer layer(disk);
  FilePass pass(world.environment, layer, {.paths = {"a", "b"}, .bytes = block_bytes});
  ASSERT_TRUE(pass.prepare().ok());
  ASSERT_TRUE(pass.run({}).ok());
  const std::vector<Json> faults = world.faults();
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0]["kind"], "file-copy") << "in the place of an identity, that the host had compared";
  EXPECT_EQ(faults[0]["offset"], 8);
  EXPECT_EQ(faults[0]["xor"], "0x00000008");
}

// Faults injected by --inject

Injection of(InjectionKind kind, std::int64_t step = 0, int rank = 3) {
  Injection injection;
  injection.kind = kind;
  injection.rank = rank;
  injection.step = step;
  return injection;
}

struct Found {
  std::vector<Json> faults;
  std::vector<Json> injections;
};

/// A whole run of the file part.
Found suffer(std::vector<Injection> injections, std::uint64_t bytes, int passes, bool direct = true) {
  World world(test::small_host_device(), std::move(injections));
  FakeDisk disk;
  disk.direct = direct;
  FileWorkload file(world.environment, {.size = bytes, .repeats = passes, .budget = {}},
                    std::make_unique<FakeFileLayer>(disk));
  EXPECT_TRUE(file.prepare().ok());
  EXPECT_TRUE(file.start().ok());
  EXPECT_TRUE(file.enqueue({.index = 0}).ok());
  EXPECT_TRUE(eventually([&] { return file.report().figures.at("cycles") >= 1; }));
  EXPECT_TRUE(file.finish(false).ok());
  Found found;
  for (const Record& record : world.records.drain()) {
    if (record.kind == RecordKind::fault) found.faults.push_back(record.body);
    if (record.kind == RecordKind::injection) found.injections.push_back(record.body);
  }
  return found;
}

class FileInjectionTest
    : public ::testing::TestWithParam<std::tuple<InjectionKind, std::uint64_t /*bytes*/, int /*passes*/>> {};

TEST_P(FileInjectionTest, StrikesAndIsFoundOnceAsWhatItIs) {
  const auto& [kind, bytes, passes] = GetParam();
  for (const bool direct : {true, false}) {
    const Found found = suffer({of(kind)}, bytes, passes, direct);
    ASSERT_EQ(found.injections.size(), 1u);
    ASSERT_EQ(found.faults.size(), 1u);
    const Json& fault = found.faults[0];
    EXPECT_EQ(fault["kind"], to_string(kind));
    EXPECT_EQ(fault["rank"], 3);
    EXPECT_EQ(fault["offset"].get<std::uint64_t>() / 4,
              found.injections[0]["first_word"].get<std::uint64_t>());
    if (kind == InjectionKind::file_bit) {
      EXPECT_EQ(fault["xor"], found.injections[0]["mask"]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FileInjectionTest,
    ::testing::Combine(::testing::Values(InjectionKind::file_bit, InjectionKind::file_stale,
                                         InjectionKind::file_torn, InjectionKind::file_misplaced,
                                         InjectionKind::file_lost),
                       ::testing::Values(4 * block_bytes, 300'000, 40'000'000),
                       ::testing::Values(1, 4)));  // 1: its remaining chances come at the end

std::vector<InjectionKind> data_kinds() {
  std::vector<InjectionKind> of_data;
  for (const InjectionRow& row : injection_rows)
    if (is_of_files(row.kind) && row.changes_data()) of_data.push_back(row.kind);
  return of_data;
}

TEST(FileInjection, ManyAreAllFoundEachAsWhatItIs) {
  for (const std::uint64_t bytes : {12 * block_bytes, std::uint64_t{2'000'000}}) {
    std::vector<Injection> asked;
    for (int i = 0; i < 12; ++i)
      for (const InjectionKind kind : data_kinds()) asked.push_back(of(kind, -i));
    const Found found = suffer(asked, bytes, 60);
    EXPECT_EQ(found.injections.size(), 60u);
    ASSERT_EQ(found.faults.size(), 60u);
    for (const InjectionKind kind : data_kinds())
      EXPECT_EQ(std::count_if(found.faults.begin(), found.faults.end(),
                              [&](const Json& fault) { return fault["kind"] == to_string(kind); }),
                12)
          << to_string(kind);
  }
}

TEST(FileInjection, SeveralBitsAndWordsStayOneFault) {
  Injection injection = of(InjectionKind::file_bit);
  injection.mask = 0x80000005u;
  injection.count = 4;
  injection.stride = 100;
  const Found found = suffer({injection}, 300'000, 2);
  ASSERT_EQ(found.faults.size(), 1u);
  EXPECT_EQ(found.faults[0]["kind"], "file-bit");
  EXPECT_EQ(found.faults[0]["xor"], "0x80000005");
  EXPECT_EQ(found.faults[0]["count"], 4);
}

TEST(FileInjection, WaitsForItsStepAndItsRank) {
  const Found found =
      suffer({of(InjectionKind::file_bit, 1000), of(InjectionKind::file_lost, 0, 2)}, 300'000, 3);
  EXPECT_TRUE(found.injections.empty());
  EXPECT_TRUE(found.faults.empty());
}

TEST(FileInjection, OneThatCannotStrikeDoesNotHoldTheEndUp) {
  const Found found = suffer({of(InjectionKind::file_misplaced)}, block_bytes, 2);
  EXPECT_TRUE(found.injections.empty()) << "a file of one block has no other place";
  EXPECT_TRUE(found.faults.empty());
}

}  // namespace
}  // namespace egt
