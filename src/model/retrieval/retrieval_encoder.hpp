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

/// A retrieval test: pairs of a query and a document are two noisy views of one latent vector; an encoder,
/// one for both views, learns to give them embeddings whose inner product is the largest for the pair.
struct RetrievalConfig {
  std::int64_t latent = 16;                  ///< numbers of a latent vector
  std::int64_t inputs = 64;                  ///< numbers of a view
  std::vector<std::int64_t> hidden = {128};  ///< neurons of the hidden layers, at least one layer
  std::int64_t embedding = 32;               ///< numbers of an embedding
  float noise = 0.3f;  ///< standard deviation of a view's noise; without it a number of a view has 1

  std::int64_t shards = 8;   ///< of a step's batch, each with its own negatives
  std::int64_t pairs = 64;   ///< of a shard
  double temperature = 0.1;  ///< what inner products are divided by in training
  Optimizer optimizer = Optimizer::adam;
  double learning_rate = 2e-3;
  float momentum = 0.9f;  ///< of SGD

  std::int64_t evaluated = 1024;  ///< pairs of the evaluation set: each query searches all documents of it
  std::int64_t block = 128;       ///< pairs that are encoded and searched at once; divides `evaluated`

  Precision precision = Precision::fp32;  ///< of all products: fp32, tf32 or bf16
  std::uint64_t seed = 1;

  std::int64_t blocks() const { return evaluated / block; }
};

/// A test of some seconds on one core: 200 steps of training reach a recall@1 far above chance.
RetrievalConfig small_retrieval();
/// For GPUs: 7.3 million parameters, about 1.4 TFLOP a step of training, 6.3 TFLOP an evaluation; some 2 GiB.
RetrievalConfig large_retrieval();

/// invalid_argument: a size that does not fit; unsupported: a precision that the device or the test has not.
Status check_retrieval(const Device& device, const RetrievalConfig& config);

/// Floating-point operations of the matrix products of a training step, of all shards; of an evaluation.
double training_flops(const RetrievalConfig& config);
double evaluation_flops(const RetrievalConfig& config);

namespace retrieval {

enum class Side { query, document };

/// Private to RetrievalModel: data, forward, loss and backward of one shard or block. Whatever is enqueued
/// goes to one stream and works in memory of the encoder's own: one thread, one call after the other.
class Encoder {
 public:
  /// All outlive the encoder.
  Encoder(Device& device, const RetrievalConfig& config, const ParameterLayout& layout, Stream& stream)
      : device_(device), config_(config), layout_(layout), stream_(stream) {}

  /// Takes memory and enqueues the making of the fixed maps from latent vectors to views.
  Status prepare();

  /// The type of activations and embeddings.
  ElementType type() const { return activation_type(config_.precision); }

  /// The loss of the pairs [shard * pairs, ..) of the step's batch, and its share of the gradient of the mean
  /// over the batch. `gradient`: fp32, layout.size(); biases of the last layer and padding are not written.
  /// `losses`: fp32, 2 * pairs, of each query among the shard's documents, then of each document among the
  /// queries. `fault`: words of the first hidden layer's activation that are changed on purpose; null: none.
  Status train_shard(const mlp::ParameterSet& parameters, std::int64_t step, std::int64_t shard,
                     float* gradient, float* losses, const Flip* fault);

  /// Embeddings of one side of the evaluation set's pairs [first_pair, first_pair + embeddings.rows).
  /// `embeddings`: of `type`, at most max(2 * pairs, block) rows.
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
  std::array<Buffer, 2> maps_;       // by Side: inputs x latent
  Buffer latent_;                    // rows x latent
  std::vector<Buffer> activations_;  // [0]: views; [l]: behind hidden layer l; rows x neurons
  Buffer embeddings_, embeddings_gradient_;
  std::array<Buffer, 2> gradients_;     // of activations, by turns
  std::array<Buffer, 2> similarities_;  // pairs x pairs, fp32: of queries to documents, and the other way
  std::array<Buffer, 2> operands_;      // their gradients as products read them, where that is not fp32
};

}  // namespace retrieval
}  // namespace egt
