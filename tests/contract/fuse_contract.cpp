#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "arena.hpp"
#include "device_contract.hpp"
#include "egt/core/math/half.hpp"
#include "robotics_reference.hpp"

namespace egt::contract {
namespace {

using reference::below;
using reference::Engine;
using reference::fraction;
using reference::Fused;
using reference::Streams;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
template <typename T, std::size_t N>
T one_of(const T (&values)[N], Engine& engine) {
  return values[below(N, engine)];
}

/// The streams' arrays on a device.
class StreamsOnDevice {
 public:
  /// `shift`: offset of values and results from a 256-byte boundary, in bytes.
  StreamsOnDevice(const Streams& streams, Arena& arena, std::size_t shift = 0) : arena_(arena) {
    arena.clear();
    call_.shape = streams.shape;
    for (int s = 0; s < streams.shape.streams; ++s) {
      call_.times[s] = arena.put(streams.times[s]);
      call_.values[s] = arena.put(streams.values[s], shift);
    }
    call_.timeline = arena.put(streams.timeline);
    call_.fused = arena.reserve<float>(numbers(), shift);
    call_.dropped = arena.reserve<std::uint32_t>(rows());
    call_.scratch_bytes = fusion_scratch_bytes(call_.shape);
    call_.scratch = arena.reserve<std::byte>(call_.scratch_bytes);
  }

  const StreamFusion& call() const { return call_; }
  Fused result() const { return {arena_.get(call_.fused, numbers()), arena_.get(call_.dropped, rows())}; }
  bool ends_are_untouched() const {
    return arena_.end_is_untouched(call_.fused, numbers()) &&
           arena_.end_is_untouched(call_.dropped, rows()) &&
           arena_.end_is_untouched(static_cast<std::byte*>(call_.scratch), call_.scratch_bytes);
  }

 private:
  std::size_t numbers() const {
    return static_cast<std::size_t>(call_.shape.batch * call_.shape.steps * call_.shape.total_dims());
  }
  std::size_t rows() const { return static_cast<std::size_t>(call_.shape.batch * call_.shape.streams); }

  Arena& arena_;
  StreamFusion call_;
};

Fused fuse(const Streams& streams, Device& device, Stream& stream, Arena& arena, std::size_t shift = 0) {
  const StreamsOnDevice on_device(streams, arena, shift);
  EXPECT_OK(arena.upload(device, stream));
  EXPECT_OK(device.fuse(on_device.call(), stream));
  EXPECT_OK(arena.download(device, stream));
  EXPECT_OK(device.synchronize(stream, 60));
  EXPECT_TRUE(on_device.ends_are_untouched());
  return on_device.result();
}

/// Bit for bit, including NaNs.
void expect_same(const Fused& actual, const Fused& expected, const std::string& what) {
  EXPECT_EQ(actual.dropped, expected.dropped) << what;
  ASSERT_EQ(actual.values.size(), expected.values.size()) << what;
  for (std::size_t i = 0; i < expected.values.size(); ++i)
    ASSERT_EQ(float_bits(actual.values[i]), float_bits(expected.values[i]))
        << what << ", number " << i << ": " << actual.values[i] << ", not " << expected.values[i];
}

/// One of seven kinds: unordered, all equal, evenly increasing, increasing with gaps, occasionally
/// decreasing, some not finite, any magnitude.
std::vector<double> random_times(std::int64_t samples, Engine& engine) {
  constexpr double odd[] = {nan, infinity, -infinity, 0.0, -0.0, 1.0};
  constexpr double sizes[] = {1e308, -1e308, 1e-300, 1e17, 0.25, -7.0};
  const std::uint64_t kind = below(7, engine);
  std::vector<double> times;
  double now = fraction(engine);
  for (std::int64_t i = 0; i < samples; ++i) {
    const double before = now;
    now += kind == 2 ? 0.0625 : fraction(engine) * 0.2;
    times.push_back(kind == 0                            ? fraction(engine) * 3
                    : kind == 1                          ? 0.5
                    : kind == 4 && below(4, engine) == 0 ? before - fraction(engine)
                    : kind == 5 && below(3, engine) == 0 ? one_of(odd, engine)
                    : kind == 6                          ? one_of(sizes, engine) * fraction(engine)
                                                         : now);
  }
  return times;
}

/// Inside and outside the first stream's time range, equal to some of its times, or not finite; in any order.
double random_time(const std::vector<double>& stamps, Engine& engine) {
  constexpr double odd[] = {nan, infinity, -infinity, 1e308, -1e308, -0.0};
  const std::uint64_t kind = below(10, engine);
  if (kind == 0) return one_of(odd, engine);
  if (kind < 5 && !stamps.empty()) return stamps[below(stamps.size(), engine)];
  return fraction(engine) * 5 - 0.5;
}

float random_value(Engine& engine) {
  constexpr float odd[] = {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
                           -0.0f};
  if (below(20, engine) > 0) return static_cast<float>(2 * fraction(engine) - 1);
  const std::uint64_t kind = below(std::size(odd) + 1, engine);
  return kind < std::size(odd) ? odd[kind] : float_from_bits(0xFFC12345u);  // a non-canonical NaN
}

void append_element(Streams& streams, Engine& engine) {
  const FusionShape& shape = streams.shape;
  std::vector<double> first_times;
  for (int s = 0; s < shape.streams; ++s) {
    const std::vector<double> times = random_times(shape.samples[s], engine);
    if (s == 0) first_times = times;
    streams.times[s].insert(streams.times[s].end(), times.begin(), times.end());
    for (std::int64_t i = 0; i < shape.samples[s] * shape.dims[s]; ++i)
      streams.values[s].push_back(random_value(engine));
  }
  for (std::int64_t i = 0; i < shape.steps; ++i) streams.timeline.push_back(random_time(first_times, engine));
}

Streams random_streams(std::uint64_t seed) {
  Engine engine(seed);
  constexpr std::int64_t samples[] = {0, 1, 2, 3, 17, 40, 64}, dims[] = {1, 3, 28, 2, 6, 4, 8},
                         steps[] = {0, 1, 2, 5, 9, 32}, batches[] = {0, 1, 1, 2, 3};
  Streams streams;
  streams.shape.batch = one_of(batches, engine);
  streams.shape.steps = one_of(steps, engine);
  streams.shape.streams = 1 + static_cast<int>(below(max_fusion_streams, engine));
  const bool even = below(2, engine) == 0;  // counts that allow vector loads of two or four
  for (int s = 0; s < streams.shape.streams; ++s) {
    streams.shape.samples[s] = one_of(samples, engine);
    streams.shape.dims[s] = one_of(dims, engine) * (even ? 2 : 1);
  }
  for (std::int64_t element = 0; element < streams.shape.batch; ++element) append_element(streams, engine);
  return streams;
}

/// One stream with one value per sample.
Streams single_stream(std::vector<double> times, std::vector<float> values, std::vector<double> timeline) {
  Streams streams;
  streams.shape.batch = 1;
  streams.shape.steps = static_cast<std::int64_t>(timeline.size());
  streams.shape.streams = 1;
  streams.shape.samples[0] = static_cast<std::int64_t>(times.size());
  streams.shape.dims[0] = 1;
  streams.times[0] = std::move(times);
  streams.values[0] = std::move(values);
  streams.timeline = std::move(timeline);
  return streams;
}

}  // namespace

TEST_P(DeviceContract, FuseIsThePlainOneOnManyInputs) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  for (std::uint64_t seed = 0; seed < 250 && !HasFatalFailure(); ++seed) {
    const Streams streams = random_streams(seed);
    expect_same(fuse(streams, device(), stream(), arena, 4 * (seed % 4)), reference::fuse(streams),
                fmt::format("input {}", seed));
  }
}

/// More samples than a block scans at once, and more steps than a block has threads.
TEST_P(DeviceContract, FuseTakesLongRows) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    Engine engine(seed);
    Streams streams;
    streams.shape = {.batch = 2, .steps = 2100, .streams = 2, .samples = {9001, 4096}, .dims = {2, 1}};
    for (std::int64_t element = 0; element < 2; ++element) append_element(streams, engine);
    expect_same(fuse(streams, device(), stream(), arena), reference::fuse(streams),
                fmt::format("input {}", seed));
  }
}

TEST_P(DeviceContract, FuseKeepsItsRules) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  const auto expect_fused = [&](const Streams& streams, const std::vector<float>& values,
                                std::uint32_t dropped, const char* what) {
    expect_same(fuse(streams, device(), stream(), arena), {values, {dropped}}, what);
  };
  const std::vector<double> timeline = {-1, 0, 0.25, 1, 1.5, 2, 9, nan, infinity};
  expect_fused(single_stream({0, 1, 2}, {0, 4, 16}, timeline), {0, 0, 1, 4, 10, 16, 16, 0, 0}, 0, "rising");
  expect_fused(single_stream({}, {}, timeline), {0, 0, 0, 0, 0, 0, 0, 0, 0}, 0, "no samples");
  expect_fused(single_stream({1}, {7}, timeline), {7, 7, 7, 7, 7, 7, 7, 0, 0}, 0, "one sample");
  expect_fused(single_stream({1, 1, 1}, {7, 8, 9}, timeline), {7, 7, 7, 7, 7, 7, 7, 0, 0}, 2, "all equal");
  expect_fused(single_stream({0, nan, 1, 0.5, 1, infinity, 2}, {0, 90, 4, 91, 92, 93, 16}, timeline),
               {0, 0, 1, 4, 10, 16, 16, 0, 0}, 4, "disordered");
  expect_fused(single_stream({nan, -infinity, infinity}, {1, 2, 3}, timeline), {0, 0, 0, 0, 0, 0, 0, 0, 0}, 3,
               "none that counts");
  expect_fused(single_stream({-1e308, 1e308}, {0, 8}, {0, 0.5e308}), {4, 6}, 0, "the longest gap");
  const float big = std::numeric_limits<float>::infinity(), canonical = float_from_bits(0x7FC00000u);
  expect_fused(single_stream({0, 1, 2}, {big, 1, float_from_bits(0xFFC12345u)}, {0, 0.5, 1, 1.5, 2}),
               {big, canonical, 1, canonical, canonical}, 0, "values that are not finite");
}

TEST_P(DeviceContract, FuseGivesTheSameBitsAgain) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  const Streams streams = random_streams(123);
  Streams standard;
  standard.shape = standard_fusion_shape(2);
  Engine engine(3);
  for (std::int64_t element = 0; element < 2; ++element) append_element(standard, engine);
  for (const Streams* input : {&streams, static_cast<const Streams*>(&standard)}) {
    const Fused first = fuse(*input, device(), stream(), arena);
    expect_same(first, reference::fuse(*input), "first");
    expect_same(fuse(*input, device(), stream(), arena), first, "again");
    expect_same(fuse(*input, device(), stream(), arena, 4), first, "at another place");
  }
}

TEST_P(DeviceContract, FuseRefusesWhatDoesNotFit) {
  EGT_MAKE_ARENA(arena, 24u << 20);
  const StreamsOnDevice on_device(single_stream({0, 1}, {1, 2}, {0.5}), arena);
  const auto expect_refused = [&](const auto& change) {
    StreamFusion call = on_device.call();
    change(call);
    EXPECT_FAILS(invalid_argument, device().fuse(call, stream()));
  };
  expect_refused([](StreamFusion& call) { call.times[0] = nullptr; });
  expect_refused([](StreamFusion& call) { call.values[0] = nullptr; });
  expect_refused([](StreamFusion& call) { call.timeline = nullptr; });
  expect_refused([](StreamFusion& call) { call.fused = nullptr; });
  expect_refused([](StreamFusion& call) { call.dropped = nullptr; });
  expect_refused([](StreamFusion& call) { call.scratch = nullptr; });
  expect_refused([](StreamFusion& call) { call.scratch = static_cast<char*>(call.scratch) + 8; });
  expect_refused([](StreamFusion& call) { --call.scratch_bytes; });
  expect_refused([](StreamFusion& call) { call.shape.batch = -1; });
  expect_refused([](StreamFusion& call) { call.shape.steps = -1; });
  expect_refused([](StreamFusion& call) { call.shape.streams = 0; });
  expect_refused([](StreamFusion& call) { call.shape.streams = max_fusion_streams + 1; });
  expect_refused([](StreamFusion& call) { call.shape.samples[0] = -1; });
  expect_refused([](StreamFusion& call) { call.shape.samples[0] = std::int64_t{1} << 31; });
  expect_refused([](StreamFusion& call) { call.shape.dims[0] = 0; });
  expect_refused([](StreamFusion& call) { call.shape.dims[0] = std::int64_t{1} << 31; });
  finish();
}

}  // namespace egt::contract
