#pragma once

#include <optional>
#include <vector>

#include "egt/core/status.hpp"

/// How long a training step takes on more devices than were measured. Pure functions; times in milliseconds.
namespace egt {

/// One all-reduce, as it was measured.
struct SumTime {
  double bytes = 0;  ///< of one rank's data
  double ms = 0;
};

/// The alpha-beta model of a fabric (Hockney, "The communication challenge for MPP", Parallel Computing 20,
/// 1994): a message of n bytes takes alpha + n * beta.
struct Fabric {
  double alpha_ms = 0;          ///< latency of a message
  double beta_ms_per_byte = 0;  ///< the inverse of the bandwidth

  /// `sums` ring all-reduces one after the other, of `bytes` together, over n ranks:
  /// sums * 2(n-1) * alpha + 2(n-1)/n * bytes * beta, half of it for the reduce-scatter and half for the
  /// all-gather (Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
  /// MPICH", IJHPCA 19, 2005; Patarasuk and Yuan, JPDC 69, 2009); beta holds the additions.
  double ring_ms(int ranks, double bytes, double sums = 1) const;
};

/// From all-reduces over 2 ranks: least squares of the relative errors, so that the smallest size counts as
/// much as the largest. Neither figure is below 0. invalid_argument: less than two sizes, or no times.
Result<Fabric> fit_fabric(const std::vector<SumTime>& of_two);

/// The mean of the largest of n independent standard normal figures (David and Nagaraja, "Order Statistics",
/// 3rd edition, 2003, section 3.1: the integral of 1 - F^n above 0 less that of F^n below). Within 1e-6.
double expected_maximum(int n);

/// The standard deviation of normal figures from their middle and their 95 % quantile: a step that something
/// interrupted does not decide it, and is not in the forecast.
double normal_sigma(double p50, double p95);

enum class Growth {
  weak,    ///< each device has a batch
  strong,  ///< all devices share one
};

/// What was measured on 1 and 2 devices.
struct ScalingInputs {
  double batch = 0;                  ///< samples: of each device, or shared by all
  double alone_ms = 0;               ///< a step of the slowest device alone
  double sigma_ms = 0;               ///< of its steps
  double two_ms = 0;                 ///< a step of both together, each with a batch
  std::optional<double> half_share;  ///< compute time of half a batch, over that of a whole one
  std::vector<SumTime> sums;         ///< all-reduces over both
  double summed_bytes = 0;           ///< a step
  double sums_per_step = 1;          ///< into which these bytes are cut
  double overlap_share = 0;          ///< of the compute time: what follows the first of these sums' beginning
};

/// T(n) = c(b) + sigma * E[max of n] + max(0, exposed(n) + d), with b samples a device; exposed(n) = max(0,
/// ring(n) - overlap_share * c(b)).
/// - c is linear in b, through the slowest device's step alone and the compute time of half its batch; sigma
///   is in proportion to it;
/// - sums hide behind all that is computed after the first of them can begin, and run one after the other;
/// - d is what two devices took longer (or hid more) than that, and stays: clocks, processors lent to sums;
/// - each further rank is reached at the measured alpha and beta, by a ring.
class ScalingModel {
 public:
  /// invalid_argument: why there is none, in one line.
  static Result<ScalingModel> fit(const ScalingInputs& inputs);

  /// Nothing: with less than a sample a device, or strong, where half a batch was not measured.
  std::optional<double> step_ms(Growth growth, int ranks) const;

  const Fabric& fabric() const { return fabric_; }
  /// d above.
  double pair_ms() const { return pair_ms_; }
  /// Of all sums of a step.
  double ring_ms(int ranks) const;

 private:
  ScalingModel(const ScalingInputs& inputs, const Fabric& fabric);
  double step_ms(double compute_ms, int ranks) const;
  double jitter_ms(double compute_ms, int ranks) const;
  double exposed_ms(double compute_ms, int ranks) const;

  ScalingInputs inputs_;
  Fabric fabric_;
  double pair_ms_ = 0;
  double fixed_ms_ = 0, sample_ms_ = 0;  ///< c(b) = fixed + b * sample
};

}  // namespace egt
