#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/operation_observer.hpp"

namespace egt {

/// An operation whose result differs from an independent computation.
struct OperationFinding {
  const char* kind;      ///< fault kind: "gemm" or "replay"
  const char* detector;  ///< "GEMM verification" or "host sample"
  std::string where;     ///< "product of layer 3, bf16: element 7, 12 is 3.5, not 1.25 +- 0.01"
  double expected = 0, actual = 0;
  std::uint64_t count = 1;  ///< wrong elements among those compared
  Json map = {};            ///< as `Fault::map`
};

/// Right value of an element, and how far the actual one may be off.
struct ExpectedElement {
  double value = 0, tolerance = 0;
};

struct OperationAuditReport {
  std::vector<OperationFinding> findings;  ///< those of GEMMs first
  std::uint64_t gemms = 0;                 ///< verified GEMMs (whole or a block of rows) and bias sums
  std::uint64_t gemm_elements = 0;         ///< compared
  double largest_share = 0;                ///< max error of a right element relative to its bound
  std::uint64_t samples = 0;               ///< other operations with compared elements
};

/// Compares the operations of a known-answer pass, and the updates before it, with independent results, so
/// that an error common to all devices is detected. GEMMs: every element of a block of rows, in fp64 on the
/// device (Device::verify_gemm). A bias gradient, which is a GEMM with ones, is verified the same way. All
/// others: some elements, computed on the host.
///
/// One thread. Between `begin` and `collect`, all calls must use one stream. Destroy it after the stream's
/// work.
class OperationAudit final : public OperationObserver {
 public:
  struct Config {
    std::size_t gemms = 0;             ///< max GEMMs and bias gradient sums per pass
    std::int64_t max_rows = 0;         ///< of a pass
    std::int64_t widest_layer = 0;     ///< in neurons
    std::size_t other_operations = 0;  ///< max per pass and the updates before it
    std::uint64_t seed = 0;
  };
  /// GEMMs of a pass to verify: `first`, first + every, ..., each with at most `terms` multiply-adds (but at
  /// least one block of 16 rows).
  struct Selection {
    std::size_t first = 0, every = 1;
    double terms = 0;
  };

  /// Multiply-adds verified in a few ms on a GPU, or some tens of ms on the host.
  static double cheap_terms(const DeviceInfo& device);

  explicit OperationAudit(Device& device) : device_(device) {}
  Status prepare(const Config& config);

  /// A pass in this precision follows.
  void begin(Precision precision, const Selection& selection);
  Status before(const Operation& operation, Stream& stream) override;
  Status after(const Operation& operation, const PassTensor& tensor, Stream& stream) override;
  /// Waits for all work enqueued since `begin` and judges it.
  Result<OperationAuditReport> collect(double timeout_seconds);
  /// Discards the enqueued verifications, which are no longer in flight.
  void abort();

 private:
  /// `count` adjacent elements of a row, starting at `column`. Row 0 for vectors.
  struct Place {
    std::int64_t row = 0, column = 0, count = 0;
  };
  using Judge = std::function<std::optional<OperationFinding>()>;

  std::uint64_t draw();
  Place place_in(std::int64_t rows, std::int64_t columns);
  std::string name_of(const PassTensor& tensor) const;
  /// Enqueues a copy of the elements and returns a pointer to pinned memory; null if the matrix has no data.
  Result<const std::byte*> take(const MatrixView& m, const Place& place, Stream& stream);
  /// Copies the elements of a result at `place_`. `expected(i)`: of the i-th one.
  Result<const std::byte*> sample(const MatrixView& result, std::string name,
                                  std::function<ExpectedElement(std::int64_t)> expected, Stream& stream);

  Status verify(const Gemm& gemm, const char* kind, std::string name, std::int64_t first_row, Stream& stream);
  /// `sums`: of each column of `gradient`. Not for fp64, whose sums are rounded to another type.
  Status verify_sums(const VectorView& sums, const MatrixView& gradient, const PassTensor& tensor,
                     Stream& stream);
  Status take_result(const auto&, const PassTensor&, Stream&) { return {}; }
  Status take_result(const Gemm& operation, const PassTensor& tensor, Stream& stream);
  Status take_result(const Activation& operation, const PassTensor& tensor, Stream& stream);
  Status take_result(const LossGradient& operation, const PassTensor& tensor, Stream& stream);
  Status take_result(const ActivationGradient& operation, const PassTensor& tensor, Stream& stream);
  Status take_result(const OptimizerStep& operation, const PassTensor& tensor, Stream& stream);

  Device& device_;
  Config config_;
  Precision precision_ = Precision::fp32;
  Selection selection_;
  std::size_t gemms_seen_ = 0;
  std::vector<Judge> gemms_, samples_;
  std::uint64_t sampled_operations_ = 0;
  Place place_;                             ///< of the operation between `before` and `after`
  std::vector<const std::byte*> operands_;  ///< of the same operation
  Buffer reports_;                          ///< GemmMismatches in device memory, one per GEMM
  Buffer pinned_reports_, elements_;        ///< pinned
  Buffer ones_;                             ///< in the type of the gradient
  std::size_t used_bytes_ = 0;              ///< of elements_
  std::uint64_t draws_ = 0;
  std::unique_ptr<Event> done_;
};

}  // namespace egt
