#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "egt/core/flip.hpp"
#include "egt/core/status.hpp"
#include "egt/device/device.hpp"
#include "model/mlp_buffers.hpp"
#include "model/mlp_config.hpp"
#include "model/parameter_layout.hpp"

namespace egt {

/// A retrieval test. A query and its document are two noisy views of one latent vector. One encoder for both
/// views learns embeddings whose inner product is max for matching pairs.
struct RetrievalConfig {
  std::int64_t latent = 16;                  ///< elements of a latent vector
  std::int64_t inputs = 64;                  ///< elements of a view
  std::vector<std::int64_t> hidden = {128};  ///< neurons of the hidden layers, at least one layer
  std::int64_t embedding = 32;               ///< elements of an embedding
  float noise = 0.3f;  ///< standard deviation of a view's noise, relative to 1 for its signal

  std::int64_t shards = 8;   ///< shards per step, each with its own negatives
  std::int64_t pairs = 64;   ///< pairs per shard
  double temperature = 0.1;  ///< divisor of inner products in training
  Optimizer optimizer = Optimizer::adam;
  double learning_rate = 2e-3;
  float momentum = 0.9f;  ///< for SGD

  std::int64_t evaluated = 1024;  ///< pairs of the evaluation set; each query searches all documents in it
  std::int64_t block = 128;       ///< pairs encoded and searched per GEMM; divides `evaluated`

  Precision precision = Precision::fp32;  ///< of all GEMMs: fp32, tf32 or bf16
  std::uint64_t seed = 1;

  std::int64_t blocks() const { return evaluated / block; }
};

/// Runs some seconds on one core: 200 training steps reach a recall@1 far above chance.
RetrievalConfig small_retrieval();
/// For GPUs: 7.3 million parameters, 2 GiB, about 1.4 TFLOP per training step, 6.3 TFLOP per evaluation.
RetrievalConfig large_retrieval();

/// invalid_argument: a size is invalid. unsupported: the device or the test does not support the precision.
Status check_retrieval(const Device& device, const RetrievalConfig& config);

/// GEMM operations of a training step over all shards, and of an evaluation.
double training_flops(const RetrievalConfig& config);
double evaluation_flops(const RetrievalConfig& config);

namespace retrieval {

enum class Side { query, document };

/// Private to RetrievalModel: data, forward, loss and backward of one shard or block. All work uses one
/// stream and the encoder's own memory, so calls must not overlap. Not thread-safe.
class Encoder {
 public:
  /// All arguments must outlive the encoder.
  Encoder(Device& device, const RetrievalConfig& config, const ParameterLayout& layout, Stream& stream)
      : device_(device), config_(config), layout_(layout), stream_(stream) {}

  /// Allocates memory and enqueues the generation of the fixed maps from latent vectors to views.
  Status prepare();

  /// The type of activations and embeddings.
  ElementType type() const { return activation_type(config_.precision); }

  /// Computes the loss of the pairs [shard * pairs, ..) of the step's batch, and their share of the gradient
  /// of the batch mean. `gradient`: fp32, layout.size(); biases of the last layer and padding are not
  /// written. `losses`: fp32, 2 * pairs elements: first the loss of each query over the shard's documents,
  /// then that of each document over the queries. `fault`: injected into the first hidden layer's activation;
  /// null: none.
  Status train_shard(const mlp::ParameterSet& parameters, std::int64_t step, std::int64_t shard,
                     float* gradient, float* losses, const Flip* fault);

  /// Computes the embeddings of one side of the evaluation set's pairs [first_pair, first_pair +
  /// embeddings.rows). `embeddings`: of `type`, up to max(2 * pairs, block) rows.
  Status encode(const mlp::ParameterSet& parameters, Side side, std::int64_t first_pair,
                MatrixView embeddings);

 private:
  Result<Buffer> allocate(std::int64_t elements, ElementType type);
  MatrixView activation(std::size_t layer, std::int64_t rows) const;
  Status multiply(const MatrixView& a, bool a_transposed, const MatrixView& b, bool b_transposed,
                  const MatrixView& d, double alpha = 1.0, double beta = 0.0);
  Status make_view(Side side, std::uint64_t sequence, std::int64_t first_pair, const MatrixView& view);
  Status forward(const mlp::ParameterSet& parameters, const MatrixView& embeddings, const Flip* fault);
  Status contrast(const MatrixView& embeddings, const MatrixView& gradient, float* losses);
  Status backward(const mlp::ParameterSet& parameters, MatrixView gradient, float* parameter_gradient);

  Device& device_;
  const RetrievalConfig& config_;
  const ParameterLayout& layout_;
  Stream& stream_;
  std::array<Buffer, 2> maps_;       // indexed by Side: inputs x latent
  Buffer latent_;                    // rows x latent
  std::vector<Buffer> activations_;  // [0]: views; [l]: output of hidden layer l; rows x neurons
  Buffer embeddings_, embeddings_gradient_;
  std::array<Buffer, 2> gradients_;     // of activations, alternating
  std::array<Buffer, 2> similarities_;  // pairs x pairs, fp32: queries to documents, and the transpose
  std::array<Buffer, 2> operands_;      // their gradients in the compute type; empty if that is fp32
};

}  // namespace retrieval
}  // namespace egt
