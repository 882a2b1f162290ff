#include "egt/core/injection.hpp"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <vector>

namespace egt {
namespace {

Injection good(const std::string& text) {
  auto parsed = parse_injection(text);
  EXPECT_TRUE(parsed.ok()) << text << ": " << parsed.status().what();
  return parsed.ok() ? parsed.value() : Injection();
}

/// The error of an invalid text: invalid_argument, one line.
std::string refused(const std::string& text) {
  const auto parsed = parse_injection(text);
  EXPECT_FALSE(parsed.ok()) << text;
  if (parsed.ok()) return {};
  EXPECT_EQ(parsed.status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(parsed.status().what().find('\n'), std::string::npos);
  return parsed.status().what();
}

TEST(ParseInjection, TakesEveryKeyInAnyOrder) {
  const Injection one = good("weight:step=20,layer=3,stride=32,count=4,bit=3+31,rank=1");
  EXPECT_EQ(one.kind, InjectionKind::weight);
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.step, 20);
  EXPECT_EQ(one.mask, 0x80000008u);
  EXPECT_EQ(one.count, 4u);
  EXPECT_EQ(one.stride, 32u);
  EXPECT_EQ(one.layer, 3);
  EXPECT_FALSE(one.ms);
  EXPECT_EQ(good("slow:rank=0,step=1,ms=2.5").ms, 2.5);
}

TEST(ParseInjection, KindsThatLeaveDataAsTheyAreTakeWhatTheyNeed) {
  EXPECT_EQ(good("hang:rank=0,step=1,layer=2,ms=4000").layer, 2);
  for (const std::string kind : {"slow", "hang", "stop", "temperature"})
    EXPECT_EQ(good(kind + ":rank=0,step=1,ms=7").ms, 7);
  for (const std::string kind : {"slow", "temperature", "diskfull"})
    EXPECT_THAT(refused(kind + ":rank=0,step=1,count=1"), ::testing::HasSubstr("use 2 or more for " + kind));
  for (const std::string kind : {"slow", "temperature", "diskfull"})
    EXPECT_EQ(good(kind + ":rank=0,step=1,count=7").count, 7u);
}

TEST(ParseInjection, WhatIsNotGivenIsLeftOpen) {
  const Injection one = good("memory:rank=0,step=0");
  EXPECT_FALSE(one.mask || one.layer || one.ms);
  EXPECT_EQ(one.count, 1u);
  EXPECT_EQ(one.stride, 1u);
}

TEST(ParseInjection, KnowsEveryKindOfTheContract) {
  const std::vector<std::string> data = {
      "weight",         "gradient",  "activation", "gemm",           "extreme",    "collective",
      "optimizer",      "memory",    "host-copy",  "file-bit",       "file-stale", "file-torn",
      "file-misplaced", "file-lost", "all-reduce", "multiprocessor", "memory-gemm"};
  const std::vector<std::string> others = {
      "slow", "hang",        "kill",          "stop",     "temperature",
      "xid",  "ecc",         "ecc-corrected", "diskfull", "memory-pressure",
      "idle", "device-error"};
  for (const auto* kinds : {&data, &others})
    for (const std::string& kind : *kinds) {
      const Injection one = good(kind + ":rank=2,step=7");
      EXPECT_EQ(to_string(one.kind), kind);
      EXPECT_EQ(row_of(one.kind).changes_data(), kinds == &data) << kind;
    }
}

TEST(ParseInjection, TheMessageNamesWhatIsWrong) {
  EXPECT_TRUE(refused("sabotage:rank=0,step=1").starts_with("'sabotage': no such kind of fault; use KIND:"));
  EXPECT_NE(refused("gem:rank=0,step=1").find("no such kind of fault; did you mean gemm? use KIND:"),
            std::string::npos);
  EXPECT_NE(refused("").find("one of weight gradient"), std::string::npos);
  EXPECT_TRUE(refused("weight").starts_with("'weight': rank is missing; use KIND:"));
  EXPECT_TRUE(refused("weight:rank=1").starts_with("'weight:rank=1': step is missing"));
  EXPECT_TRUE(refused("weight:rank=1,step=1,depth=2").starts_with("'depth': no such key"));
  EXPECT_EQ(refused("weight:rank=1,rank=2,step=1"), "'rank': given twice; give it once");
  EXPECT_EQ(refused("weight:rank=1,step=1,bit=32"), "'bit=32': use bits of 0 to 31, as 3 or 3+7");
  EXPECT_EQ(refused("memory:rank=1,step=1,layer=2"), "'layer': the kind memory has no such key");
  EXPECT_EQ(refused("file-lost:rank=1,step=1,bit=2"), "'bit': the kind file-lost has no such key");
  EXPECT_EQ(refused("file-stale:rank=1,step=1,count=2"), "'count': the kind file-stale has no such key");
  EXPECT_EQ(refused("weight:rank=1,step=1,ms=2"), "'ms': the kind weight has no such key");
  EXPECT_EQ(refused("hang:rank=1,step=1,count=2"), "'count': the kind hang has no such key");
  EXPECT_EQ(refused("slow:rank=1,step=1,layer=2"), "'layer': the kind slow has no such key");
  EXPECT_EQ(refused("diskfull:rank=1,step=1,stride=2"), "'stride': the kind diskfull has no such key");
  for (const std::string kind : {"kill", "xid", "ecc", "memory-pressure", "idle"})
    EXPECT_EQ(refused(kind + ":rank=1,step=1,ms=2"), "'ms': the kind " + kind + " has no such key");
}

TEST(ParseInjection, RefusesValuesOutOfTheirBounds) {
  for (const char* member :
       {"bit=-1", "bit=32", "bit=", "bit=3+", "bit=3,7", "bit=3+32", "count=0", "count=16777217", "count=-1",
        "stride=0", "stride=4294967297", "stride=1.5", "layer=0", "layer=65", "layer", "layer=", "=", ""})
    refused(std::string("weight:rank=1,step=1,") + member);
  for (const char* text :
       {"weight:rank=-1,step=1", "weight:rank=1000001,step=1", "weight:rank=1,step=-1",
        "weight:rank= 1,step=1", "weight:rank=1,step=1000000000001", "weight:rank=0x1,step=1",
        "weight:rank=1,step=99999999999999999999", "Weight:rank=1,step=1", "weight :rank=1,step=1",
        "weight;rank=1,step=1", "weight:rank=1;step=1"})
    refused(text);
  for (const char* ms : {"nan", "inf", "-1", "1e10", "", "1s"})
    refused(std::string("slow:rank=0,step=1,ms=") + ms);
}

TEST(ParseInjection, TakesTheBoundsThemselves) {
  const Injection most =
      good("weight:rank=1000000,step=1000000000000,bit=0+31,count=16777216,stride=4294967296,layer=64");
  EXPECT_EQ(most.mask, 0x80000001u);
  EXPECT_EQ(most.count, 1u << 24);
  EXPECT_EQ(most.stride, 1ull << 32);
}

TEST(InjectionText, IsParsedToTheSame) {
  for (const char* text :
       {"weight:rank=1,step=20", "gemm:rank=0,step=3,bit=3+7,count=8,stride=32,layer=2",
        "slow:rank=0,step=1,ms=2.5", "extreme:rank=1,step=2,lasting=always", "file-misplaced:rank=2,step=0"})
    EXPECT_EQ(to_text(good(text)), text);
}

TEST(InjectionJson, HasWhatWasAskedForAndNullForTheRest) {
  const Json json = to_json(good("gemm:rank=0,step=3,bit=7+3,layer=2"));
  EXPECT_EQ(json, Json({{"kind", "gemm"},
                        {"rank", 0},
                        {"step", 3},
                        {"bits", {3, 7}},
                        {"count", 1},
                        {"stride", 1},
                        {"layer", 2},
                        {"peer", nullptr},
                        {"ms", nullptr},
                        {"lasting", nullptr}}));
}

std::set<std::uint64_t> words_hit(const Flip& flip, std::uint64_t words) {
  std::set<std::uint64_t> hit;
  for (std::uint64_t i = 0; i < flip.count; ++i) hit.insert((flip.first + i * flip.stride) % words);
  return hit;
}

TEST(ChooseFlip, HitsEachWordOnce) {
  for (const std::uint64_t words : {1ull, 2ull, 7ull, 64ull, 1000ull})
    for (const char* rest :
         {"", "count=2,stride=64", "count=16,stride=4", "count=5000", "count=9,stride=1000"}) {
      const std::string text = std::string("weight:rank=0,step=1") + (*rest ? "," : "") + rest;
      const Flip flip = choose_flip(good(text), words, 5);
      EXPECT_GE(flip.count, 1u) << text;
      EXPECT_LT(flip.first, words);
      EXPECT_EQ(words_hit(flip, words).size(), flip.count) << text << " of " << words << " words";
    }
  EXPECT_EQ(choose_flip(good("weight:rank=0,step=1,count=16,stride=4"), 1000, 5).count, 16u);
}

TEST(ChooseFlip, TakesTheBitsAskedForOrALowOne) {
  EXPECT_EQ(choose_flip(good("weight:rank=0,step=1,bit=31"), 9, 1).mask, 1u << 31);
  std::set<std::uint32_t> masks;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Flip flip = choose_flip(good("weight:rank=0,step=1"), 9, seed);
    EXPECT_EQ(flip.keep, ~0u);
    masks.insert(flip.mask);
  }
  EXPECT_EQ(masks.size(), 28u);
  for (const std::uint32_t mask : masks) EXPECT_LT(mask, 1u << 28);
}

TEST(ChooseFlip, ChoosesTheSameAgainAndAnotherPlaceForAnotherInjection) {
  std::set<std::uint64_t> places;
  for (int step = 0; step < 100; ++step) {
    const Injection one = good("weight:rank=0,step=" + std::to_string(step));
    EXPECT_EQ(choose_flip(one, 1u << 30, 3).first, choose_flip(one, 1u << 30, 3).first);
    places.insert(choose_flip(one, 1u << 30, 3).first);
  }
  EXPECT_EQ(places.size(), 100u);
}

TEST(ChooseLayer, IsTheOneAskedForOrAnyOfThem) {
  EXPECT_EQ(choose_layer(good("weight:rank=0,step=1,layer=3"), 6, 9), 2);
  std::set<int> layers;
  for (std::uint64_t seed = 0; seed < 200; ++seed)
    layers.insert(choose_layer(good("weight:rank=0,step=1"), 6, seed));
  EXPECT_EQ(layers, (std::set<int>{0, 1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace egt
