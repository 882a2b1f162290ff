#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include "device_contract.hpp"

namespace egt::contract {
namespace {

using reference::Array;
using reference::Matrix;

constexpr std::int64_t rows = 37, columns = 65;

Matrix z_of(ElementType type) {
  reference::Engine engine(1);
  Matrix z(type, rows, columns, columns + 5);
  reference::fill_uniform(z, engine);
  return z;
}

Array some_bias() {
  reference::Engine engine(2);
  Array bias(ElementType::f32, columns);
  reference::fill_uniform(bias, engine);
  return bias;
}

bool same(const Matrix& one, const Matrix& other) {
  return one.array == other.array;
}

}  // namespace

TEST_P(DeviceContract, TheExtremeDigestIsThatOfAllChainsBits) {
  if (!is_host()) GTEST_SKIP() << "another library's functions may differ by some ulp";
  const Array bias = some_bias();
  constexpr ExtremeTerm term{.iterations = 9, .first_row = 3};
  for (const ElementType type : all_types) {
    const Matrix z = z_of(type);
    Digest expected;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto place = static_cast<std::uint64_t>((term.first_row + r) * columns + c);
        const float z0 = type == ElementType::f64
                             ? static_cast<float>(z.get(r, c) + bias.get(c))
                             : static_cast<float>(z.get(r, c)) + static_cast<float>(bias.get(c));
        const auto chain = math::extreme(std::fabs(z0), math::extreme_phase(place), term.iterations);
        add_to_digest(expected.a, expected.b, static_cast<std::uint64_t>(r * columns + c), chain.bits);
      }
    EXPECT_EQ(activate(z, bias, term).digest, expected) << to_string(type);
  }
}

/// If work may be throttled, a GPU splits it into pieces of about a millisecond: 10^8 iterations.
TEST_P(DeviceContract, PiecesOfRowsGiveTheSameExtremeTerms) {
  constexpr ExtremeTerm term{.iterations = 2'000, .first_row = 11};
  constexpr std::int64_t many_rows = 1'000;
  reference::Engine engine(3);
  Matrix z(ElementType::f32, is_host() ? rows : many_rows, columns, columns + 5);
  reference::fill_uniform(z, engine);
  const ActivatedMatrix whole = activate(z, some_bias(), term);
  EXPECT_OK(device().allow_holds());
  const DeviceMatrix h = upload(z);
  const DeviceArray bias = upload(some_bias());
  EXPECT_OK(device().activate(h.view, bias.floats(), term, stream()));
  Matrix pieces = z;
  download(h, pieces);
  EXPECT_TRUE(same(pieces, whole.h));
  const ActivatedMatrix digested = activate(z, some_bias(), term);
  EXPECT_TRUE(same(digested.h, whole.h));
  EXPECT_EQ(digested.digest, whole.digest);
}

TEST_P(DeviceContract, TheExtremeDigestChangesNothingAndIsRepeatable) {
  const ActivatedMatrix one = activate(z_of(ElementType::bf16), some_bias(), {.iterations = 20}),
                        other = activate(z_of(ElementType::bf16), some_bias(), {.iterations = 20});
  EXPECT_EQ(one.digest, other.digest);
  EXPECT_TRUE(same(one.h, other.h));
  const DeviceMatrix h = upload(z_of(ElementType::bf16));
  const DeviceArray bias = upload(some_bias());
  EXPECT_OK(device().activate(h.view, bias.floats(), {.iterations = 20}, stream()));
  Matrix undigested = z_of(ElementType::bf16);
  download(h, undigested);
  EXPECT_TRUE(same(undigested, one.h));
}

TEST_P(DeviceContract, TheExtremeDigestDependsOnThePhasesAndTheInputs) {
  const Digest digest = activate(z_of(ElementType::bf16), some_bias(), {.iterations = 20}).digest;
  EXPECT_NE(digest,
            activate(z_of(ElementType::bf16), some_bias(), {.iterations = 20, .first_row = 1}).digest);
  EXPECT_NE(digest, activate(z_of(ElementType::bf16), some_bias(), {.iterations = 21}).digest);
  Matrix other = z_of(ElementType::bf16);
  other.set(7, 3, other.get(7, 3) + 1);
  EXPECT_NE(digest, activate(other, some_bias(), {.iterations = 20}).digest);
}

/// In bf16, whose stored bits barely reflect the change.
TEST_P(DeviceContract, AnyBitOfOneElementsOneExtremeTurnShows) {
  constexpr int iterations = 200;
  const Digest clean = activate(z_of(ElementType::bf16), some_bias(), {.iterations = iterations}).digest;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen = {{clean.a, clean.b}};
  for (const std::uint64_t element : {0, 1, 37 * 65 - 1})
    for (const int turn : {0, 100, iterations - 1})
      for (const std::uint32_t bit : {0, 11, 27}) {
        const ExtremeTerm faulted{
            .iterations = iterations, .fault = {.first = element, .mask = 1u << bit}, .fault_turn = turn};
        const Digest digest = activate(z_of(ElementType::bf16), some_bias(), faulted).digest;
        const bool is_new = seen.emplace(digest.a, digest.b).second;
        EXPECT_TRUE(is_new) << "element " << element << ", turn " << turn << ", bit " << bit;
      }
  EXPECT_EQ(clean, activate(z_of(ElementType::bf16), some_bias(),
                            {.iterations = iterations, .fault = {.first = 37 * 65}})
                       .digest)
      << "no such element";
}

TEST_P(DeviceContract, NoExtremeTermIsDigestedOfNothing) {
  const Buffer digest = allocate(sizeof(Digest));
  EXPECT_OK(device().activate({nullptr, ElementType::f32, 0, 8}, digest.as<float>(),
                              {.iterations = 5, .digest = digest.as<Digest>()}, stream()));
  EXPECT_EQ(download_value<Digest>(digest.data()), Digest{});
}

TEST_P(DeviceContract, AnExtremeTermRefusesWhatDoesNotFit) {
  const Buffer memory = allocate(4096);
  const MatrixView h{memory.data(), ElementType::f32, 4, 5};
  const auto with = [&](const ExtremeTerm& extreme) {
    return device().activate(h, memory.as<float>() + 512, extreme, stream());
  };
  Digest* const digest = memory.as<Digest>() + 100;
  EXPECT_FAILS(invalid_argument, with({.iterations = -1}));
  EXPECT_FAILS(invalid_argument, with({.iterations = 1, .first_row = -1}));
  EXPECT_FAILS(invalid_argument, with({.digest = digest}));
  EXPECT_FAILS(invalid_argument, with({.iterations = 1, .fault = {.count = 1}}));
  EXPECT_FAILS(invalid_argument, with({.iterations = 1, .digest = digest, .fault = {.stride = 0}}));
  finish();
}

}  // namespace egt::contract
