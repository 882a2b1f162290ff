#include <algorithm>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "workload/file/file_block.hpp"

namespace egt {
namespace {

constexpr BlockIdentity expected{.run = 77, .offset = 5 * 4096, .generation = 3, .rank = 2, .file = 1};

/// A different pattern for every identity.
FileBlock make(const BlockIdentity& of) {
  std::uint64_t seed = of.run;
  for (const std::uint64_t part :
       {of.offset, std::uint64_t{of.generation}, std::uint64_t{of.rank}, std::uint64_t{of.file}})
    seed = mix64(seed) ^ part;
  const PatternFunction payload({.kind = PatternKind::random, .seed = seed});
  FileBlock block;
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = payload(i);
  stamp(block.data(), of);
  return block;
}

BlockIdentity with(const std::function<void(BlockIdentity&)>& change) {
  BlockIdentity changed = expected;
  change(changed);
  return changed;
}

FileBlock first_words_of(const FileBlock& one, const FileBlock& rest, std::size_t words) {
  FileBlock mixed = rest;
  std::copy_n(one.begin(), words, mixed.begin());
  return mixed;
}

std::optional<FileFault> kind_of(const FileBlock& block) {
  const auto finding = examine(block.data(), expected, make);
  return finding ? std::optional(finding->kind) : std::nullopt;
}

const BlockIdentity older = with([](auto& of) { of.generation = 2; });

TEST(FileBlock, ARightBlockIsRight) {
  const FileBlock block = make(expected);
  EXPECT_TRUE(carries(block.data(), expected));
  EXPECT_EQ(identity_at(BlockEnd::head, block.data()), expected);
  EXPECT_EQ(identity_at(BlockEnd::tail, block.data()), expected);
  EXPECT_FALSE(kind_of(block));
}

TEST(FileBlock, EveryBitOfBothIdentitiesCounts) {
  for (std::size_t i = 0; i < identity_words; ++i)
    for (const std::size_t word : {i, file_block_words - 1 - i})
      for (int bit = 0; bit < 32; ++bit) {
        FileBlock block = make(expected);
        block[word] ^= 1u << bit;
        EXPECT_FALSE(carries(block.data(), expected)) << word << ' ' << bit;
        EXPECT_EQ(kind_of(block), FileFault::bit) << word << ' ' << bit;
      }
}

TEST(FileBlock, TheTwoEndsAreNotTakenForEachOther) {
  const FileBlock block = make(expected);
  FileBlock turned = block;
  std::copy_n(block.end() - identity_words, identity_words, turned.begin());
  EXPECT_FALSE(identity_at(BlockEnd::head, turned.data()));
}

TEST(FileBlock, RestoreGivesThePatternBack) {
  const PatternFunction payload({.kind = PatternKind::random_inverse, .seed = 9});
  FileBlock block;
  for (std::size_t i = 0; i < block.size(); ++i) block[i] = payload(3000 + i);
  const FileBlock plain = block;
  stamp(block.data(), expected);
  EXPECT_NE(block, plain);
  restore(block.data(), payload, 3000);
  EXPECT_EQ(block, plain);
}

TEST(FileBlock, FlippedBitsAreBitsHoweverMany) {
  for (const std::size_t stride : {1, 7, 100}) {
    FileBlock block = make(expected);
    for (std::size_t i = 0; i < block.size(); i += stride) block[i] ^= 0x80000001u;
    EXPECT_EQ(kind_of(block), FileFault::bit) << stride;
  }
  FileBlock inverted = make(expected);
  for (std::uint32_t& word : inverted) word = ~word;
  EXPECT_EQ(kind_of(inverted), FileFault::bit);
}

TEST(FileBlock, TellsWhatIsThereInstead) {
  EXPECT_EQ(kind_of(make(older)), FileFault::stale);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.generation = 1; }))), FileFault::stale);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.offset = 0; }))), FileFault::misplaced);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.offset = 0, of.generation = 2; }))), FileFault::misplaced);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.file = 0; }))), FileFault::swapped);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.rank = 0; }))), FileFault::swapped);
  EXPECT_EQ(kind_of(make(with([](auto& of) { of.run = 78; }))), FileFault::lost) << "of an earlier run";
  EXPECT_EQ(kind_of(FileBlock{}), FileFault::lost);
  FileBlock junk;
  junk.fill(0xDEADBEEFu);
  EXPECT_EQ(kind_of(junk), FileFault::lost);
}

TEST(FileBlock, ABlockWrittenInPartIsTornWhereverItBreaks) {
  const FileBlock right = make(expected);
  for (const std::size_t words : {128, 256, 512, 896}) {
    EXPECT_EQ(kind_of(first_words_of(right, make(older), words)), FileFault::torn) << words;
    EXPECT_EQ(kind_of(first_words_of(make(older), right, words)), FileFault::torn) << words;
    EXPECT_EQ(kind_of(first_words_of(right, FileBlock{}, words)), FileFault::torn) << words;
    EXPECT_EQ(kind_of(first_words_of(FileBlock{}, right, words)), FileFault::torn) << words;
  }
  FileBlock middle = right;
  std::copy_n(make(older).begin() + 256, 128, middle.begin() + 256);
  EXPECT_EQ(kind_of(middle), FileFault::torn) << "both identities are right";
}

TEST(FileBlock, AStaleBlockWithDamagedIdentitiesIsStillStale) {
  FileBlock block = make(older);
  block[0] ^= 1;
  block.back() ^= 1;
  EXPECT_EQ(kind_of(block), FileFault::stale);
}

TEST(FileBlock, NamesTheFirstWordThatDiffers) {
  FileBlock block = make(expected);
  block[700] ^= 0x10;
  block[900] ^= 0x10;
  const auto finding = examine(block.data(), expected, make);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->offset, expected.offset);
  EXPECT_EQ(finding->first_word, 700u);
  EXPECT_EQ(finding->wrong_words, 2u);
  EXPECT_EQ(finding->expected ^ finding->actual, 0x10u);
}

}  // namespace
}  // namespace egt
