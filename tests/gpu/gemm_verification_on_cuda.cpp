// Verification of large layers' GEMMs on a GPU: whether the bounds hold for units that truncate where a CPU
// rounds, how much of the bounds correct results use, and the cost of verification.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/cuda_device.hpp"

namespace egt {
namespace {

constexpr double timeout_s = 60;

struct Case {
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
};

/// Forward, input gradient and weight gradient of a large layer; odd sizes; many terms.
constexpr Case cases[] = {{1024, 4096, 8192, false, true},
                          {1024, 8192, 4096, false, false},
                          {4096, 8192, 1024, true, false},
                          {33, 65, 129, false, true},
                          {127, 63, 65536, true, true}};

/// Sums of one sign accumulate the most truncation error.
enum class Data { signed_numbers, positive, tiny };
constexpr Data all_data[] = {Data::signed_numbers, Data::positive, Data::tiny};

#define ASSERT_OK(expression)                  \
  do {                                         \
    const Status status = (expression);        \
    ASSERT_TRUE(status.ok()) << status.what(); \
  } while (false)

class GemmVerificationOnCuda : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    auto opened = open_cuda_device(0);
    ASSERT_OK(opened.status());
    device_ = std::move(opened.value());
    if (const Support support = device_->supports(GetParam()); !support.yes())
      GTEST_SKIP() << support.why_not;
    stream_ = std::move(device_->create_stream(StreamPriority::normal).value());
    for (auto& event : events_) event = std::move(device_->create_event(EventUse::timing).value());
    for (Buffer& buffer : buffers_) buffer = std::move(device_->allocate(largest_bytes).value());
    ASSERT_OK(device_->set_zero(buffers_[3].data(), largest_bytes, *stream_));
    report_ = std::move(device_->allocate(sizeof(GemmMismatches)).value());
    pinned_ = std::move(device_->allocate_pinned(sizeof(GemmMismatches)).value());
  }

  Gemm gemm_of(const Case& c) const {
    const ElementType type = storage_type(GetParam());
    return {.precision = GetParam(),
            .a = {buffers_[0].data(), type, c.a_transposed ? c.k : c.m, c.a_transposed ? c.m : c.k},
            .b = {buffers_[1].data(), type, c.b_transposed ? c.n : c.k, c.b_transposed ? c.k : c.n},
            .d = {buffers_[2].data(), type, c.m, c.n},
            .a_transposed = c.a_transposed,
            .b_transposed = c.b_transposed};
  }

  void fill(const MatrixView& m, Data data, std::uint64_t seed) {
    const float tiny = m.type == ElementType::f16 ? 1e-5f : 1e-30f;
    ASSERT_OK(device_->randomize({m.data, m.type, m.count()},
                                 {.seed = seed, .scale = data == Data::tiny ? tiny : 1.0f}, *stream_));
    if (data == Data::positive) ASSERT_OK(device_->activate(m, buffers_[3].as<float>(), {}, *stream_));
  }

  GemmMismatches verify(const Gemm& gemm) {
    auto* const report = report_.as<GemmMismatches>();
    EXPECT_TRUE(device_->set_zero(report, sizeof *report, *stream_).ok());
    EXPECT_TRUE(device_->record(*events_[0], *stream_).ok());
    const Status status = device_->verify_gemm(gemm, report, *stream_);
    EXPECT_TRUE(status.ok()) << status.what();
    EXPECT_TRUE(device_->record(*events_[1], *stream_).ok());
    EXPECT_TRUE(device_->copy(pinned_.data(), report, sizeof *report, *stream_).ok());
    EXPECT_TRUE(device_->synchronize(*stream_, timeout_s).ok());
    return *pinned_.as<GemmMismatches>();
  }

  static constexpr std::size_t largest_bytes = std::size_t{8} * 4096 * 8192;
  std::unique_ptr<Device> device_;
  std::vector<Buffer> buffers_ = std::vector<Buffer>(4);
  Buffer report_, pinned_;
  std::unique_ptr<Event> events_[2];
  std::unique_ptr<Stream> stream_;  // last member: its destructor waits for its work first
};

}  // namespace

TEST_P(GemmVerificationOnCuda, AcceptsRightResultsAndFindsAFlippedBit) {
  for (const Case& c : cases)
    for (const Data data : all_data) {
      SCOPED_TRACE(testing::Message()
                   << c.m << " x " << c.n << " x " << c.k << ", data " << static_cast<int>(data));
      const Gemm gemm = gemm_of(c);
      fill(gemm.a, data, 1);
      fill(gemm.b, data, 2);
      ASSERT_OK(device_->gemm(gemm, *stream_));
      const GemmMismatches right = verify(gemm);
      EXPECT_EQ(right.compared, static_cast<std::uint64_t>(c.m * c.n));
      EXPECT_EQ(right.wrong, 0u) << right.sample[0].actual << ", not " << right.sample[0].expected << " +- "
                                 << right.sample[0].bound;
      EXPECT_EQ(right.undecided, 0u);
      EXPECT_LE(right.largest_share(), 1);
      const double ms = device_->elapsed_ms(*events_[0], *events_[1]).value();
      std::printf("%s %lld x %lld x %lld data %d: %.3f of the bound, %.2f ms, %.2f T multiply-adds/s\n",
                  std::string(to_string(GetParam())).c_str(), static_cast<long long>(c.m),
                  static_cast<long long>(c.n), static_cast<long long>(c.k), static_cast<int>(data),
                  right.largest_share(), ms,
                  static_cast<double>(c.m) * static_cast<double>(c.n) * static_cast<double>(c.k) / ms / 1e9);

      const WordsView words{static_cast<std::uint32_t*>(gemm.d.data),
                            static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / 4};
      const std::uint64_t odd_word = words.count / 2 | 1;  // for fp64, the half with the exponent
      ASSERT_OK(device_->flip(words, {.first = odd_word, .keep = 0x0000FFFF, .mask = 0x7BFF0000}, *stream_));
      const GemmMismatches wrong = verify(gemm);
      EXPECT_EQ(wrong.wrong, 1u);
      EXPECT_EQ(wrong.sample[0].row * gemm.d.columns + wrong.sample[0].column,
                static_cast<std::int64_t>(odd_word * 4 / size_of(gemm.d.type) +
                                          (size_of(gemm.d.type) == 2 ? 1 : 0)));
    }
}

/// Sums of mixed and of equal signs: tensor cores truncate 8-bit terms at 2^-13 of the largest one.
TEST_P(GemmVerificationOnCuda, AcceptsRightResultsOf8Bits) {
  if (GetParam() != Precision::bf16) GTEST_SKIP() << "once";
  if (const Support support = device_->supports(Precision::fp8); !support.yes())
    GTEST_SKIP() << support.why_not;
  const Buffer scales = std::move(device_->allocate(2 * Gemm::scale_alignment).value());
  const Buffer wide = std::move(device_->allocate(std::size_t{4096} * 8192 * sizeof(float)).value());
  for (const std::int64_t k : {16, 128, 1024, 8192})
    for (const ElementType a_type : {ElementType::f8, ElementType::f8_e5m2})
      for (const Data data : {Data::signed_numbers, Data::positive}) {
        SCOPED_TRACE(testing::Message() << "k " << k << ", data " << static_cast<int>(data));
        Gemm gemm{.precision = Precision::fp8,
                  .a = {buffers_[0].data(), a_type, 4096, k},
                  .b = {buffers_[1].data(), ElementType::f8, 2048, k},
                  .d = {buffers_[2].data(), ElementType::f32, 4096, 2048},
                  .b_transposed = true,
                  .a_scale = scales.as<float>(),
                  .b_scale = scales.as<float>() + Gemm::scale_alignment / sizeof(float)};
        std::uint64_t seed = 5;
        for (const auto& [copy, scale] : {std::pair(gemm.a, gemm.a_scale), std::pair(gemm.b, gemm.b_scale)}) {
          const MatrixView x(wide.data(), ElementType::f32, copy.rows, copy.columns);
          fill(x, data, seed++);
          ASSERT_OK(device_->quantize(
              {.x = x, .copy = copy, .transposed = {}, .scale = const_cast<float*>(scale)}, *stream_));
        }
        ASSERT_OK(device_->gemm(gemm, *stream_));
        const GemmMismatches found = verify(gemm);
        EXPECT_EQ(found.compared, std::uint64_t{4096} * 2048);
        EXPECT_EQ(found.wrong, 0u) << found.sample[0].actual << ", not " << found.sample[0].expected << " +- "
                                   << found.sample[0].bound;
        std::printf("fp8 k %lld a %s data %d: %.3f of the bound\n", static_cast<long long>(k),
                    std::string(to_string(a_type)).c_str(), static_cast<int>(data), found.largest_share());
      }
}

INSTANTIATE_TEST_SUITE_P(All, GemmVerificationOnCuda,
                         testing::Values(Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                         Precision::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace egt
