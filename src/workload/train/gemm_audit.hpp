#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "egt/core/status.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// op(a): m x k, op(b): k x n.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;

  GemmShape() = default;
  explicit GemmShape(const Gemm& gemm)
      : m(gemm.d.rows), n(gemm.d.columns), k(gemm.a_transposed ? gemm.a.rows : gemm.a.columns) {}
};

/// How far a right product of k terms may be from the exact one, whatever the order of its sums:
/// |d - exact| <= terms * sum |op(a)| |op(b)| + stored * |d| + quantum, for every element (gemm_audit.cpp
/// gives the sources).
struct GemmRounding {
  double terms = 0;
  double stored = 0;
  double quantum = 0;      ///< results below the normal numbers; they may be flushed to zero
  double largest = 0;      ///< the largest finite element; beyond it infinity is right
  double largest_sum = 0;  ///< the same for the sums, while they are made

  static GemmRounding of(Precision precision, ElementType stored_as, std::int64_t k);
};

/// What was wrong in one product, as one check saw it.
struct GemmFinding {
  std::string name;                                     ///< of the product, as given
  const char* check;                                    ///< "checksum" or "host sample"
  std::int64_t row = 0, first_column = 0, columns = 0;  ///< of d: the first wrong sum, or element
  double expected = 0, actual = 0, bound = 0;           ///< |actual - expected| may be `bound` at most
  std::uint64_t rows_wrong = 0;                         ///< of the rows looked at
  bool not_finite = false;  ///< d holds NaN or infinity, where neither operands nor overflow explain it

  /// "product of layer 3, bf16: checksum of row 7, columns 0 to 511, is 3.5, not 1.25 +- 0.01 (1 row wrong)".
  std::string text() const;
};

struct GemmAuditReport {
  std::vector<GemmFinding> findings;  ///< at most one a product and check
  std::uint64_t products = 0;         ///< checksums and host samples
  std::uint64_t comparisons = 0;      ///< sums and elements compared, the undecided ones included
  std::uint64_t undecided = 0;        ///< d is not finite, and overflow may be why
  double largest_share = 0;  ///< of its bound that a right sum or element was off, at most: the margin left
};

struct GemmAuditConfig {
  std::int64_t largest_dimension = 0;  ///< m, n and k of the products are at most this
  std::size_t slots = 1;               ///< checksums and host samples at most between two calls of `collect`
  std::uint64_t seed = 0;              ///< of the random vectors and samples
  /// Each row of d is checked in so many sums. More find smaller errors, and cost two more readings of op(a)
  /// each.
  int column_groups = 8;
};

/// Audits products while they are in device memory. alpha is 1, beta is 0.
///
/// The checksum sees every element: d x = op(a) (op(b) x), row by row, for a random vector x, another one
/// each time (Huang, Abraham, "Algorithm-based fault tolerance for matrix operations", 1984; Freivalds,
/// 1977), in fp64 on the device. The tolerance is a bound on the rounding, so a right product never alarms,
/// and a change of one element by more than 2.01 times the bound is always found. Elements of x are of either
/// sign and 1 to 1.25 large, so that equal errors of several elements hardly ever cancel.
///
/// The host sample sees a few elements, others each time, and recomputes them in fp64 on the host: the only
/// check whose arithmetic is not the device's own; that only copies and widens the operands.
///
/// One thread. All calls between two `collect` go to one stream, right behind the product, while its operands
/// and result are still as it read and wrote them. Pinned and device memory: about (slots + 1) * 32 *
/// largest_dimension * (column_groups + 1) bytes and 1 MB. To be destroyed after the stream's work, or its
/// `collect`.
class GemmAudit {
 public:
  static constexpr std::int64_t sample_rows = 4, sample_columns = 4;  ///< a host sample is all their elements

  /// Waits for the device, some milliseconds.
  static Result<std::unique_ptr<GemmAudit>> create(Device& device, const GemmAuditConfig& config);

  /// Puts the checksum of the product in line. `name` is for messages: "product of layer 3, bf16".
  Status enqueue_checksum(const Gemm& gemm, std::string name, Stream& stream);
  /// Puts the copies of a host sample of the product in line.
  Status enqueue_host_sample(const Gemm& gemm, std::string name, Stream& stream);
  /// Waits for all that was put in line, judges it, and frees the slots.
  Result<GemmAuditReport> collect(double timeout_seconds);
  /// Frees the slots unjudged; nothing of them may be in line any more.
  void give_up() { used_ = 0; }
  std::size_t free_slots() const { return slots_.size() - used_; }

 private:
  enum class Check { checksum, host_sample };
  struct Comparison;
  class Judge;
  struct Columns {
    std::int64_t first = 0, count = 0;
  };
  struct Slot {
    Check check = Check::checksum;
    std::string name;
    GemmShape shape;
    GemmRounding rounding;
    ElementType type = ElementType::f32;  ///< of d
    std::vector<std::int64_t> rows;       ///< of the host sample
    std::vector<Columns> columns;         ///< groups of the checksum, single columns of the host sample
    Buffer pinned;                        ///< the evidence, and behind it the operands' scales
    std::unique_ptr<Event> done;

    float* scales() const { return reinterpret_cast<float*>(pinned.as<std::byte>() + pinned.bytes()) - 2; }
    double scale() const { return double{scales()[0]} * double{scales()[1]}; }
  };

  GemmAudit(Device& device, const GemmAuditConfig& config) : device_(device), config_(config) {}
  Status allocate();
  Status upload_vectors();
  Status admit(const Gemm& gemm, const Stream& stream) const;
  Slot& prepare_slot(Check check, const Gemm& gemm, std::string name);
  Status finish_slot(Slot& slot, const Gemm& gemm, std::size_t bytes, Stream& stream);
  /// A random word, of its own for every audit and index.
  std::uint64_t draw(std::uint64_t index) const;
  std::vector<Columns> column_groups(std::int64_t n) const;
  Status enqueue_group(const Gemm& gemm, const Slot& slot, std::size_t group, Stream& stream);
  Status enqueue_line(MatrixView line, bool transposed, double* values, Stream& stream);
  static Comparison checksum(const Slot& slot, std::int64_t row, std::size_t group);
  static Comparison sample(const Slot& slot, std::size_t row, std::size_t column);
  static bool judge_row(const Slot& slot, std::int64_t r, GemmFinding& finding, GemmAuditReport& report);
  static void judge(const Slot& slot, GemmAuditReport& report);
  double* factors() const { return vectors_.as<double>(); }
  double* magnitudes() const { return factors() + factor_count(); }
  double* one() const { return magnitudes() + factor_count(); }
  std::size_t factor_count() const;

  Device& device_;
  const GemmAuditConfig config_;
  Buffer vectors_;       ///< factors, of which each x is a part; their magnitudes; the number 1
  Buffer intermediate_;  ///< op(b) x
  Buffer evidence_;      ///< what goes to a slot's pinned memory, of one audit after the other
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::uint64_t audits_ = 0;
  const Stream* stream_ = nullptr;  ///< of the slots in use
};

}  // namespace egt
