#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/device/device.hpp"
#include "workload/options.hpp"

/// Operations with known answers. Each is enqueued, digested on the device, and compared with the host's own
/// computation.
namespace egt {

/// A difference from the host's answer.
struct WrongAnswer {
  std::string where;
  double expected = 0, actual = 0;
  std::uint64_t count = 1;  ///< wrong values among those compared
};

/// The operations evaluation and similarity of `verify`. Evaluation is the forward pass of a network of fixed
/// weights for known samples: encodings = relu(samples w1^T + b) w2^T. Similarity computes the dot products
/// of all pairs of encodings. By cosine similarity, the best match of each encoding must be itself.
class EncodingCheck {
 public:
  static constexpr std::size_t answers = 2;  ///< encodings, similarities

  /// `device` and `options` must outlive the check.
  EncodingCheck(Device& device, const ReadinessOptions& options, std::uint64_t seed)
      : device_(device), options_(options), seed_(seed) {}

  /// Allocates memory, enqueues samples and weights, and computes the host's reference.
  Status prepare(Stream& stream);
  /// `digests`: device memory. Clears previous results first.
  Status enqueue(Digest* digests, Stream& stream);
  // Valid after the enqueued work is done:
  /// Compares the encodings of some samples with the host's.
  std::optional<WrongAnswer> wrong_encoding() const;
  /// Compares all best matches, and some of the dot products.
  std::optional<WrongAnswer> wrong_similarity() const;
  /// Per `enqueue`.
  double flops() const;
  /// Encodings and similarities, in elements.
  std::uint64_t outputs() const;

 private:
  struct Tensor {
    Buffer memory;
    MatrixView view;
  };
  Result<Tensor> make(std::int64_t rows, std::int64_t columns) const;
  Status randomize(const Tensor& tensor, std::uint64_t purpose, float scale, Stream& stream) const;
  float random(std::uint64_t purpose, float scale, std::int64_t index) const;
  std::vector<double> expected_encoding(std::int64_t sample) const;
  float weight_scale(std::int64_t inputs) const;
  std::optional<WrongAnswer> wrong_match() const;
  std::optional<WrongAnswer> wrong_product() const;

  Device& device_;
  const ReadinessOptions& options_;
  const std::uint64_t seed_;
  Tensor samples_, first_, bias_, second_, hidden_, encodings_, products_;
  Buffer pinned_encodings_, pinned_products_;
  std::vector<std::vector<double>> expected_;  ///< of the audited samples
};

/// One step of each optimizer from known weights and gradients.
class OptimizerCheck {
 public:
  static constexpr std::size_t answers = 2;  ///< weights after SGD, after Adam

  /// `parameters` is above 0; `device` must outlive the check.
  OptimizerCheck(Device& device, std::int64_t parameters, std::uint64_t seed)
      : device_(device), parameters_(parameters), seed_(seed) {}

  Status prepare();
  Status enqueue(Digest* digests, Stream& stream);
  /// Compares every parameter once the work is done. `answer`: 0 SGD, 1 Adam.
  std::optional<WrongAnswer> wrong_step(std::size_t answer) const;
  std::uint64_t outputs() const { return answers * static_cast<std::uint64_t>(parameters_); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(parameters_) * sizeof(float); }

  Device& device_;
  const std::int64_t parameters_;
  const std::uint64_t seed_;
  Buffer memory_;  ///< gradient; weights per optimizer; states
  Buffer pinned_;  ///< gradient and weights before; weights after, per optimizer
  std::vector<float> expected_[answers];
};

}  // namespace egt
