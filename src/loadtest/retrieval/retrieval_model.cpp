#include "loadtest/retrieval/retrieval_model.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "egt/core/profiler_range.hpp"
#include "egt/core/wait.hpp"
#include "model/mlp_state.hpp"

namespace egt {

namespace {

using mlp::EventHandle;
using retrieval::Side;

constexpr double preparation_timeout_s = 60.0;
constexpr std::int64_t slot_unit = 64;  // elements, 256 bytes; a shard's slot is a multiple of this

ParameterLayout layout_of(const RetrievalConfig& config) {
  std::vector<std::int64_t> neurons = {config.inputs};
  neurons.insert(neurons.end(), config.hidden.begin(), config.hidden.end());
  neurons.push_back(config.embedding);
  return ParameterLayout(neurons, std::numeric_limits<std::int64_t>::max());
}

/// Configuration of the weights and their optimizer.
MlpConfig training_of(const RetrievalConfig& config) {
  MlpConfig training;
  training.precisions = {config.precision};
  training.optimizer = config.optimizer;
  training.learning_rate = config.learning_rate;
  training.momentum = config.momentum;
  training.seed = config.seed;
  return training;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Blocks of the evaluation set: [first, first + count).
struct BlockRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

}  // namespace

struct RetrievalModel::Impl {
  Impl(Device& d, Communicator& c, const RetrievalConfig& r)
      : device(d),
        communicator(c),
        config(r),
        training(training_of(r)),
        layout(layout_of(r)),
        slot_count(divide_up(layout.size() + 2 * r.pairs, slot_unit) * slot_unit),
        slots(divide_up(r.shards, c.size())),
        blocks_each(divide_up(r.blocks(), c.size())),
        trained(device, training, layout) {}

  Status prepare();
  Status allocate();
  Result<Buffer> allocate_zeros(std::int64_t count, std::size_t element_bytes);
  Result<EventHandle> timing_event() { return device.create_event(EventUse::timing); }
  const Flip* flip_of(RetrievalPart part, std::int64_t index) const;

  Status make_shard(std::int64_t step, std::int64_t shard);
  Status sum_shards();
  Status update();
  VectorView slot(const Buffer& slots_memory, std::int64_t index) const;

  BlockRange own_blocks() const;
  MatrixView embeddings(const Buffer& memory, std::int64_t first_row, std::int64_t rows) const;
  Status gather(const Buffer& own, const Buffer& all);
  Status meet();
  Status encode(const BlockRange& blocks, const Buffer& queries_out, const Buffer& documents_out);
  Status search(const BlockRange& blocks, const Buffer& larger_out);
  Status enqueue_alone();
  Status enqueue_by_all();
  Result<RetrievalScores> read_scores();

  Status wait(const Event& event, double timeout_seconds, const char* what, bool with_peers);

  Device& device;
  Communicator& communicator;
  const RetrievalConfig config;
  const MlpConfig training;
  const ParameterLayout layout;
  const std::int64_t slot_count;   // fp32 elements of a shard's slot: its gradient, then its losses
  const std::int64_t slots;        // slots of this rank, some of which may be unused
  const std::int64_t blocks_each;  // blocks per rank; the last ranks may have fewer or none
  std::optional<RetrievalFault> tensor_faults;

  // Members are destroyed in reverse order, so the stream is destroyed before the memory that its work uses.
  mlp::TrainedState trained;
  Buffer own_slots, all_slots, sum;   // shards' slots, and their sum
  Buffer own_queries, own_documents;  // embeddings of this rank's blocks
  Buffer queries, documents;          // of all ranks, in order, padded to whole blocks
  Buffer own_larger, larger;          // in the same order: how many documents rank before each query's own
  Buffer similarity;                  // block x evaluated, fp32
  Buffer answers;                     // Digests
  Buffer losses_on_host, larger_on_host, answers_on_host;  // pinned
  std::array<EventHandle, depth> step_begin, step_end;
  EventHandle evaluation_begin, encoded, searched, read;
  std::optional<retrieval::Encoder> encoder;  // owns its memory
  std::unique_ptr<Stream> stream;
};

Result<std::unique_ptr<RetrievalModel>> RetrievalModel::create(Device& device, Communicator& communicator,
                                                               const RetrievalConfig& config) {
  EGT_TRY(check_retrieval(device, config));
  auto impl = std::make_unique<Impl>(device, communicator, config);
  EGT_TRY(impl->prepare());
  return std::unique_ptr<RetrievalModel>(new RetrievalModel(std::move(impl)));
}

RetrievalModel::RetrievalModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RetrievalModel::~RetrievalModel() = default;

Status RetrievalModel::Impl::prepare() {
  EGT_TRY_ASSIGN(stream, device.create_stream(StreamPriority::normal));
  EGT_TRY(allocate());
  for (auto* events : {&step_begin, &step_end})
    for (EventHandle& event : *events) {
      EGT_TRY_ASSIGN(event, timing_event());
    }
  for (EventHandle* event : {&evaluation_begin, &encoded, &searched, &read}) {
    EGT_TRY_ASSIGN(*event, timing_event());
  }
  EGT_TRY(trained.allocate(false));
  EGT_TRY(trained.initialize(*stream));
  const VectorView copy = trained.parameters.compute_copy(config.precision);
  if (copy.data != nullptr) EGT_TRY(device.cast(copy, trained.parameters.master(), *stream));
  encoder.emplace(device, config, layout, *stream);
  EGT_TRY(encoder->prepare());
  return device.synchronize(*stream, preparation_timeout_s);
}

/// Padding and unused slots are never written, so they stay zero.
Result<Buffer> RetrievalModel::Impl::allocate_zeros(std::int64_t count, std::size_t element_bytes) {
  EGT_TRY_ASSIGN(Buffer buffer, device.allocate(static_cast<std::size_t>(count) * element_bytes));
  EGT_TRY(device.set_zero(buffer.data(), buffer.bytes(), *stream));
  return buffer;
}

Status RetrievalModel::Impl::allocate() {
  const std::int64_t ranks = communicator.size(), own_pairs = blocks_each * config.block;
  EGT_TRY_ASSIGN(own_slots, allocate_zeros(slots * slot_count, sizeof(float)));
  EGT_TRY_ASSIGN(all_slots, allocate_zeros(ranks * slots * slot_count, sizeof(float)));
  EGT_TRY_ASSIGN(sum, allocate_zeros(slot_count, sizeof(float)));
  const std::size_t width = size_of(activation_type(config.precision));
  for (Buffer* own : {&own_queries, &own_documents}) {
    EGT_TRY_ASSIGN(*own, allocate_zeros(own_pairs * config.embedding, width));
  }
  for (Buffer* all : {&queries, &documents}) {
    EGT_TRY_ASSIGN(*all, allocate_zeros(ranks * own_pairs * config.embedding, width));
  }
  EGT_TRY_ASSIGN(own_larger, allocate_zeros(own_pairs, sizeof(std::int32_t)));
  EGT_TRY_ASSIGN(larger, allocate_zeros(ranks * own_pairs, sizeof(std::int32_t)));
  EGT_TRY_ASSIGN(similarity, allocate_zeros(config.block * config.evaluated, sizeof(float)));
  EGT_TRY_ASSIGN(answers, allocate_zeros(1, sizeof(RetrievalDigests)));
  EGT_TRY_ASSIGN(losses_on_host,
                 device.allocate_pinned(static_cast<std::size_t>(depth * 2 * config.pairs) * sizeof(float)));
  EGT_TRY_ASSIGN(larger_on_host,
                 device.allocate_pinned(static_cast<std::size_t>(config.evaluated) * sizeof(std::int32_t)));
  EGT_TRY_ASSIGN(answers_on_host, device.allocate_pinned(sizeof(RetrievalDigests)));
  return {};
}

const Flip* RetrievalModel::Impl::flip_of(RetrievalPart part, std::int64_t index) const {
  return tensor_faults && tensor_faults->part == part && tensor_faults->index == index ? &tensor_faults->flip
                                                                                       : nullptr;
}

Status RetrievalModel::Impl::wait(const Event& event, double timeout_seconds, const char* what,
                                  bool with_peers) {
  return wait_until(
      [&]() -> Result<bool> {
        if (with_peers) EGT_TRY(communicator.check());
        return device.done(event);
      },
      {.seconds = timeout_seconds, .what = what});
}

VectorView RetrievalModel::Impl::slot(const Buffer& slots_memory, std::int64_t index) const {
  return {slots_memory.as<float>() + index * slot_count, ElementType::f32, slot_count};
}

Status RetrievalModel::Impl::make_shard(std::int64_t step, std::int64_t shard) {
  const VectorView own = slot(own_slots, shard / communicator.size());
  auto* const gradient = static_cast<float*>(own.data);
  EGT_TRY(encoder->train_shard(trained.parameters, step, shard, gradient, gradient + layout.size(),
                               flip_of(RetrievalPart::activation, shard)));
  const Flip* const flip = flip_of(RetrievalPart::gradient, shard);
  if (flip == nullptr) return {};
  return device.flip(VectorView{gradient, ElementType::f32, layout.size()}.words(), *flip, *stream);
}

/// Adds the slots of all shards, in shard order: gradients, and losses per row of a shard.
Status RetrievalModel::Impl::sum_shards() {
  const std::int64_t ranks = communicator.size();
  EGT_TRY(communicator.all_gather(own_slots.data(), all_slots.data(), own_slots.bytes(), *stream));
  const auto of_shard = [&](std::int64_t shard) {
    return slot(all_slots, shard % ranks * slots + shard / ranks);
  };
  EGT_TRY(device.copy(sum.data(), of_shard(0).data, of_shard(0).bytes(), *stream));
  for (std::int64_t shard = 1; shard < config.shards; ++shard)
    EGT_TRY(device.add(slot(sum, 0), of_shard(shard), *stream));
  return {};
}

Status RetrievalModel::Impl::update() {
  trained.step_made();
  for (const GradientBucket& bucket : layout.buckets())
    EGT_TRY(trained.update(
        trained.step_of(bucket, {sum.as<float>() + bucket.offset, ElementType::f32, bucket.count},
                        config.precision),
        *stream));
  return {};
}

Status RetrievalModel::enqueue_step(std::int64_t step) {
  Impl& m = *impl_;
  const ProfilerRange range("retrieval step");
  const auto place = static_cast<std::size_t>(step % depth);
  EGT_TRY(m.device.record(*m.step_begin[place], *m.stream));
  for (std::int64_t shard = m.communicator.rank(); shard < m.config.shards; shard += m.communicator.size())
    EGT_TRY(m.make_shard(step, shard));
  EGT_TRY(m.sum_shards());
  EGT_TRY(m.update());
  const std::int64_t losses = 2 * m.config.pairs;
  EGT_TRY(m.device.copy(m.losses_on_host.as<float>() + static_cast<std::int64_t>(place) * losses,
                        m.sum.as<float>() + m.layout.size(), static_cast<std::size_t>(losses) * sizeof(float),
                        *m.stream));
  return m.device.record(*m.step_end[place], *m.stream);
}

Result<RetrievalStep> RetrievalModel::retire_step(std::int64_t step, double timeout_seconds) {
  Impl& m = *impl_;
  const auto place = static_cast<std::size_t>(step % depth);
  EGT_TRY(m.wait(*m.step_end[place], timeout_seconds, "a step of the retrieval test's training", true));
  RetrievalStep result;
  const std::int64_t losses = 2 * m.config.pairs;
  const float* const of_rows = m.losses_on_host.as<float>() + static_cast<std::int64_t>(place) * losses;
  for (std::int64_t i = 0; i < losses; ++i) result.loss += static_cast<double>(of_rows[i]);
  result.loss /= static_cast<double>(losses * m.config.shards);
  EGT_TRY_ASSIGN(result.ms, m.device.elapsed_ms(*m.step_begin[place], *m.step_end[place]));
  return result;
}

BlockRange RetrievalModel::Impl::own_blocks() const {
  const std::int64_t first = std::min(config.blocks(), communicator.rank() * blocks_each);
  return {first, std::min(blocks_each, config.blocks() - first)};
}

MatrixView RetrievalModel::Impl::embeddings(const Buffer& memory, std::int64_t first_row,
                                            std::int64_t rows) const {
  const std::int64_t all_rows =
      static_cast<std::int64_t>(memory.bytes() / size_of(encoder->type())) / config.embedding;
  return MatrixView(memory.data(), encoder->type(), all_rows, config.embedding).row_range(first_row, rows);
}

Status RetrievalModel::Impl::gather(const Buffer& own, const Buffer& all) {
  return communicator.all_gather(own.data(), all.data(), own.bytes(), *stream);
}

/// Barrier: completes only after all ranks have reached it.
Status RetrievalModel::Impl::meet() {
  return communicator.all_gather(own_larger.data(), larger.data(), sizeof(std::int32_t), *stream);
}

/// Encodes both sides of the blocks. Row 0 of both outputs is the first pair of the first block.
Status RetrievalModel::Impl::encode(const BlockRange& blocks, const Buffer& queries_out,
                                    const Buffer& documents_out) {
  for (std::int64_t i = 0; i < blocks.count; ++i) {
    const std::int64_t block = blocks.first + i, first_pair = block * config.block;
    const MatrixView of_queries = embeddings(queries_out, i * config.block, config.block);
    EGT_TRY(encoder->encode(trained.parameters, Side::query, first_pair, of_queries));
    EGT_TRY(encoder->encode(trained.parameters, Side::document, first_pair,
                            embeddings(documents_out, i * config.block, config.block)));
    if (const Flip* const flip = flip_of(RetrievalPart::embeddings, block))
      EGT_TRY(device.flip(VectorView{of_queries.data, of_queries.type, of_queries.count()}.words(), *flip,
                          *stream));
  }
  return {};
}

Status RetrievalModel::Impl::search(const BlockRange& blocks, const Buffer& larger_out) {
  const MatrixView all_documents = embeddings(documents, 0, config.evaluated);
  const MatrixView logits(similarity.data(), ElementType::f32, config.block, config.evaluated);
  for (std::int64_t i = 0; i < blocks.count; ++i) {
    const std::int64_t first_pair = (blocks.first + i) * config.block;
    EGT_TRY(device.gemm({.precision = config.precision,
                         .a = embeddings(queries, first_pair, config.block),
                         .b = all_documents,
                         .d = logits,
                         .b_transposed = true},
                        *stream));
    EGT_TRY(device.softmax_loss({.logits = logits,
                                 .first_label = first_pair,
                                 .larger = larger_out.as<std::int32_t>() + i * config.block},
                                *stream));
  }
  return {};
}

Status RetrievalModel::Impl::enqueue_alone() {
  const BlockRange all{0, config.blocks()};
  EGT_TRY(device.record(*evaluation_begin, *stream));
  EGT_TRY(encode(all, queries, documents));
  EGT_TRY(device.record(*encoded, *stream));
  EGT_TRY(search(all, larger));
  return device.record(*searched, *stream);
}

Status RetrievalModel::Impl::enqueue_by_all() {
  EGT_TRY(meet());
  EGT_TRY(device.record(*evaluation_begin, *stream));
  EGT_TRY(encode(own_blocks(), own_queries, own_documents));
  EGT_TRY(gather(own_queries, queries));
  EGT_TRY(gather(own_documents, documents));
  EGT_TRY(device.record(*encoded, *stream));
  EGT_TRY(search(own_blocks(), own_larger));
  EGT_TRY(gather(own_larger, larger));
  return device.record(*searched, *stream);
}

Result<RetrievalScores> RetrievalModel::evaluate(EvaluationScope scope, double timeout_seconds) {
  Impl& m = *impl_;
  const ProfilerRange range("retrieval evaluation");
  const bool by_all = scope == EvaluationScope::all;
  EGT_TRY(by_all ? m.enqueue_by_all() : m.enqueue_alone());
  EGT_TRY(m.device.copy(m.larger_on_host.data(), m.larger.data(), m.larger_on_host.bytes(), *m.stream));
  EGT_TRY(m.device.record(*m.read, *m.stream));
  EGT_TRY(m.wait(*m.read, timeout_seconds, "an evaluation of the retrieval test", by_all));
  return m.read_scores();
}

Result<RetrievalScores> RetrievalModel::Impl::read_scores() {
  RetrievalScores scores;
  scores.queries = config.evaluated;
  const std::int32_t* const before = larger_on_host.as<std::int32_t>();
  for (std::int64_t query = 0; query < config.evaluated; ++query)
    for (std::size_t i = 0; i < scores.hits.size(); ++i)
      if (before[query] < RetrievalScores::firsts[i]) ++scores.hits[i];
  EGT_TRY_ASSIGN(const double encode_ms, device.elapsed_ms(*evaluation_begin, *encoded));
  EGT_TRY_ASSIGN(const double search_ms, device.elapsed_ms(*encoded, *searched));
  scores.encode_seconds = encode_ms * 1e-3;
  scores.search_seconds = search_ms * 1e-3;
  return scores;
}

Result<RetrievalDigests> RetrievalModel::digests(double timeout_seconds) {
  Impl& m = *impl_;
  auto* const answers = m.answers.as<RetrievalDigests>();
  const auto digest_embeddings = [&](const MatrixView& all, Digest* digest) {
    return m.device.digest(VectorView{all.data, all.type, all.count()}.words(), digest, *m.stream);
  };
  EGT_TRY(m.device.digest(weights().words(), &answers->weights, *m.stream));
  EGT_TRY(m.device.digest(gradient().words(), &answers->gradient, *m.stream));
  EGT_TRY(digest_embeddings(queries(), &answers->queries));
  EGT_TRY(digest_embeddings(documents(), &answers->documents));
  EGT_TRY(m.device.copy(m.answers_on_host.data(), answers, sizeof *answers, *m.stream));
  EGT_TRY(m.device.record(*m.read, *m.stream));
  EGT_TRY(m.wait(*m.read, timeout_seconds, "digests of the retrieval test", false));
  return *m.answers_on_host.as<RetrievalDigests>();
}

Status RetrievalModel::tamper_weights(const Flip& flip) {
  Impl& m = *impl_;
  EGT_TRY(m.device.flip(weights().words(), flip, *m.stream));
  const VectorView copy = m.trained.parameters.compute_copy(m.config.precision);
  return copy.data == nullptr ? Status() : m.device.cast(copy, weights(), *m.stream);
}

void RetrievalModel::set_tensor_faults(std::optional<RetrievalFault> tensor_faults) {
  impl_->tensor_faults = tensor_faults;
}

const RetrievalConfig& RetrievalModel::config() const {
  return impl_->config;
}

Stream& RetrievalModel::stream() {
  return *impl_->stream;
}

VectorView RetrievalModel::weights() {
  return impl_->trained.parameters.master();
}

VectorView RetrievalModel::gradient() {
  return {impl_->sum.data(), ElementType::f32, impl_->layout.size()};
}

MatrixView RetrievalModel::queries() {
  return impl_->embeddings(impl_->queries, 0, impl_->config.evaluated);
}

MatrixView RetrievalModel::documents() {
  return impl_->embeddings(impl_->documents, 0, impl_->config.evaluated);
}

}  // namespace egt
