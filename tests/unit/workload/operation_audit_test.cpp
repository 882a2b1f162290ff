#include "workload/train/operation_audit.hpp"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/changed_device.hpp"
#include "tests/support/workload_fixture.hpp"

namespace egt::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr double timeout_s = 60;
constexpr PassTensor product{TensorKind::product, 1};

/// A GEMM of 64 x 48 x 32 with an audit of it.
struct Audited {
  explicit Audited(std::unique_ptr<Device> a_device = small_host_device()) : device(std::move(a_device)) {
    stream = std::move(device->create_stream(StreamPriority::normal).value());
    audit = std::make_unique<OperationAudit>(*device);
    EXPECT_TRUE(
        audit->prepare({.gemms = 8, .max_rows = 64, .widest_layer = 64, .other_operations = 2, .seed = 3})
            .ok());
    for (const std::int64_t elements : {64 * 32, 48 * 32, 64 * 48})
      buffers.push_back(std::move(device->allocate(static_cast<std::size_t>(elements) * 4).value()));
    gemm.a = {buffers[0].data(), ElementType::f32, 64, 32};
    gemm.b = {buffers[1].data(), ElementType::f32, 48, 32};
    gemm.d = {buffers[2].data(), ElementType::f32, 64, 48};
    gemm.b_transposed = true;
    for (const MatrixView& m : {gemm.a, gemm.b})
      EXPECT_TRUE(device->randomize({m.data, m.type, m.count()}, {.seed = 5}, *stream).ok());
    EXPECT_TRUE(device->gemm(gemm, *stream).ok());
    EXPECT_TRUE(device->synchronize(*stream, timeout_s).ok());
  }
  /// The report for `gemms` GEMMs, all equal to this one.
  OperationAuditReport report(const OperationAudit::Selection& selection, int gemms = 1) {
    audit->begin(Precision::fp32, selection);
    for (int i = 0; i < gemms; ++i) {
      EXPECT_TRUE(audit->before(gemm, *stream).ok());
      EXPECT_TRUE(audit->after(gemm, product, *stream).ok());
    }
    auto found = audit->collect(timeout_s);
    EXPECT_TRUE(found.ok()) << found.status().what();
    return found.ok() ? found.value() : OperationAuditReport();
  }

  std::unique_ptr<Device> device;
  std::vector<Buffer> buffers;
  Gemm gemm = {.precision = Precision::fp32, .a = {}, .b = {}, .d = {}};
  std::unique_ptr<OperationAudit> audit;
  std::unique_ptr<Stream> stream;
};

TEST(OperationAudit, VerifiesTheSelectedGemmsWhole) {
  Audited one;
  const OperationAuditReport report = one.report({.first = 1, .every = 3, .terms = 1e9}, 8);
  EXPECT_THAT(report.findings, IsEmpty());
  EXPECT_EQ(report.gemms, 3u);  // 1, 4 and 7
  EXPECT_EQ(report.gemm_elements, 3u * 64 * 48);
  EXPECT_GT(report.largest_share, 0);
  EXPECT_LE(report.largest_share, 1);
}

TEST(OperationAudit, VerifiesBlocksOfRowsThatReachEveryRow) {
  Audited one;
  static_cast<float*>(one.gemm.d.data)[37 * 48 + 11] += 0.01f;
  int found = 0;
  for (int i = 0; i < 40; ++i) {
    const OperationAuditReport report = one.report({.terms = 20 * 48 * 32});  // 16 rows of 64
    EXPECT_EQ(report.gemm_elements, 16u * 48);
    for (const OperationFinding& finding : report.findings) {
      ++found;
      EXPECT_STREQ(finding.kind, "gemm");
      EXPECT_THAT(finding.where, HasSubstr("product of layer 2, fp32: element 37, 11 is"));
      EXPECT_EQ(finding.count, 1u);
    }
  }
  EXPECT_GT(found, 3);  // 10 expected
  EXPECT_LT(found, 25);
}

TEST(OperationAudit, AFindingHasTheMapOfItsElementsInTheWholeMatrix) {
  Audited one;
  for (const int row : {37, 39}) static_cast<float*>(one.gemm.d.data)[row * 48 + 11] += 0.01f;
  for (int i = 0; i < 8; ++i) {
    const OperationAuditReport report = one.report({.terms = 48 * 48 * 32});  // from row 0 or 16
    ASSERT_THAT(report.findings, SizeIs(1));
    EXPECT_EQ(report.findings[0].map["rows"], (Json{37, 39}));
    EXPECT_EQ(report.findings[0].map["columns"], (Json{11, 11}));
    EXPECT_EQ(report.findings[0].map["row"]["first"], 37);
  }
}

TEST(OperationAudit, AVerificationThatComparedNothingIsAFinding) {
  Audited one(
      changed<VerifyGemm>(small_host_device(), [](const VerifyGemm&, const Enqueue&) { return Status(); }));
  const OperationAuditReport report = one.report({.terms = 1e9});
  ASSERT_THAT(report.findings, SizeIs(1));
  EXPECT_THAT(report.findings[0].where, HasSubstr("compared 0 of 3072 elements"));
}

TEST(OperationAudit, ComparesASampleOfAnActivation) {
  Audited one;
  const Buffer bias = std::move(one.device->allocate(48 * sizeof(float)).value());
  for (int c = 0; c < 48; ++c) bias.as<float>()[c] = 0.1f * static_cast<float>(c % 5 - 2);
  const Activation activation{one.gemm.d, bias.as<float>(), {.iterations = 3, .first_row = 2}};
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(one.device->gemm(one.gemm, *one.stream).ok());
    one.audit->begin(Precision::fp32, {});
    EXPECT_TRUE(one.audit->before(activation, *one.stream).ok());
    EXPECT_TRUE(one.device->activate(activation.h, activation.bias, activation.extreme, *one.stream).ok());
    EXPECT_TRUE(one.device->synchronize(*one.stream, timeout_s).ok());
    if (i % 2 == 1)
      for (std::int64_t e = 0; e < one.gemm.d.count(); ++e) static_cast<float*>(one.gemm.d.data)[e] += 1e-4f;
    EXPECT_TRUE(one.audit->after(activation, {TensorKind::activation, 0}, *one.stream).ok());
    const auto report = one.audit->collect(timeout_s);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report.value().samples, 1u);
    ASSERT_THAT(report.value().findings, SizeIs(i % 2));
    for (const OperationFinding& finding : report.value().findings) {
      EXPECT_STREQ(finding.kind, "replay");
      EXPECT_EQ(finding.count, 16u);
      EXPECT_THAT(finding.where, HasSubstr("activation of layer 1, fp32: element "));
    }
  }
}

}  // namespace
}  // namespace egt::test
