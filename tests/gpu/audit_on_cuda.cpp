// The audit of products on a GPU: whether the bounds hold for its units, which cut off what a CPU rounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.hpp"
#include "workload/train/gemm_audit.hpp"

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

/// Sums of one sign meet the worst of what is cut off.
enum class Data { signed_numbers, positive, tiny };
constexpr Data all_data[] = {Data::signed_numbers, Data::positive, Data::tiny};

#define ASSERT_OK(expression)                  \
  do {                                         \
    const Status status = (expression);        \
    ASSERT_TRUE(status.ok()) << status.what(); \
  } while (false)

class AuditOnCuda : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    auto opened = open_cuda_device(0);
    ASSERT_OK(opened.status());
    device_ = std::move(opened.value());
    if (const Support support = device_->supports(GetParam()); !support.yes())
      GTEST_SKIP() << support.why_not;
    audit_ =
        std::move(GemmAudit::create(*device_, {.largest_dimension = 65536, .slots = 8, .seed = 3}).value());
    stream_ = std::move(device_->create_stream(StreamPriority::normal).value());
    for (Buffer& buffer : buffers_) buffer = std::move(device_->allocate(largest_bytes).value());
    ASSERT_OK(device_->set_zero(buffers_[3].data(), largest_bytes, *stream_));
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

  void enqueue(const Gemm& gemm) {
    for (int i = 0; i < 3; ++i) ASSERT_OK(audit_->enqueue_checksum(gemm, "product", *stream_));
    ASSERT_OK(audit_->enqueue_host_sample(gemm, "product", *stream_));
  }

  GemmAuditReport collect() {
    auto report = audit_->collect(timeout_s);
    EXPECT_TRUE(report.ok()) << report.status().what();
    return report.ok() ? report.value() : GemmAuditReport{};
  }

  static constexpr std::size_t largest_bytes = std::size_t{8} * 4096 * 8192;
  std::unique_ptr<Device> device_;
  std::unique_ptr<GemmAudit> audit_;
  std::vector<Buffer> buffers_ = std::vector<Buffer>(4);
  std::unique_ptr<Stream> stream_;  // last: it ends its work first
};

}  // namespace

TEST_P(AuditOnCuda, RightProductsDoNotAlarmAndAFlippedBitIsFound) {
  double largest_share = 0;
  for (const Case& c : cases)
    for (const Data data : all_data) {
      SCOPED_TRACE(testing::Message()
                   << c.m << " x " << c.n << " x " << c.k << ", data " << static_cast<int>(data));
      const Gemm gemm = gemm_of(c);
      fill(gemm.a, data, 1);
      fill(gemm.b, data, 2);
      ASSERT_OK(device_->gemm(gemm, *stream_));
      enqueue(gemm);
      const GemmAuditReport right = collect();
      for (const GemmFinding& finding : right.findings) ADD_FAILURE() << finding.text();
      EXPECT_EQ(right.undecided, 0u);
      largest_share = std::max(largest_share, right.largest_share);

      const WordsView words{static_cast<std::uint32_t*>(gemm.d.data),
                            static_cast<std::uint64_t>(gemm.d.count()) * size_of(gemm.d.type) / 4};
      const std::uint64_t odd_word = words.count / 2 | 1;  // of fp64, the half with the exponent
      ASSERT_OK(device_->flip(words, {.first = odd_word, .keep = 0x0000FFFF, .mask = 0x7BFF0000}, *stream_));
      ASSERT_OK(audit_->enqueue_checksum(gemm, "flipped", *stream_));
      const GemmAuditReport wrong = collect();
      ASSERT_EQ(wrong.findings.size(), 1u);
      EXPECT_EQ(wrong.findings[0].row, static_cast<std::int64_t>(odd_word * 4 / size_of(gemm.d.type)) / c.n);
    }
  RecordProperty("largest_share", std::to_string(largest_share));
  std::printf("%s: at most %.3f of the bounds\n", std::string(to_string(GetParam())).c_str(), largest_share);
}

INSTANTIATE_TEST_SUITE_P(All, AuditOnCuda,
                         testing::Values(Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16,
                                         Precision::bf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace egt
