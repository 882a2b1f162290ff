#include "device/arguments.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <variant>

namespace egt {
namespace {

/// Checks of one operation's arguments. Messages start with its name.
class Arguments {
 public:
  constexpr explicit Arguments(std::string_view name) : name_(name) {}

  Status wrong(std::string_view what) const {
    return Status(StatusCode::invalid_argument, fmt::format("{}: {}", name_, what));
  }
  Status check(bool holds, std::string_view what_is_wrong) const {
    return holds ? Status() : wrong(what_is_wrong);
  }
  Status check_memory(const void* data, std::uint64_t count, std::string_view operand) const {
    if (count == 0 || data != nullptr) return {};
    return wrong(fmt::format("{} has no memory", operand));
  }
  Status check_count(std::int64_t count, std::string_view operand) const {
    if (count >= 0) return {};
    return wrong(fmt::format("{} cannot have {} elements", operand, count));
  }
  /// Rejects types that only GEMMs support.
  Status check_type(ElementType type, std::string_view operand) const {
    const bool is_for_products = is_quantized(type) || type == ElementType::i8 || type == ElementType::i32;
    if (!is_for_products) return {};
    return wrong(fmt::format("{} is {}, which only GEMMs accept", operand, to_string(type)));
  }
  Status check_vector(const VectorView& vector, std::string_view operand) const {
    EGT_TRY(check_type(vector.type, operand));
    EGT_TRY(check_count(vector.count, operand));
    return check_memory(vector.data, static_cast<std::uint64_t>(vector.count), operand);
  }
  Status check_matrix(const MatrixView& matrix, std::string_view operand) const {
    EGT_TRY(check_type(matrix.type, operand));
    return check_matrix_of_any_type(matrix, operand);
  }
  Status check_matrix_of_any_type(const MatrixView& matrix, std::string_view operand) const {
    if (matrix.rows < 0 || matrix.columns < 0 || matrix.leading < matrix.columns)
      return wrong(fmt::format("{} cannot be {} x {} with {} elements from row to row", operand, matrix.rows,
                               matrix.columns, matrix.leading));
    return check_memory(matrix.data, static_cast<std::uint64_t>(matrix.count()), operand);
  }
  Status check_words(const WordsView& words) const { return check_memory(words.data, words.count, "words"); }
  /// Gradients of parameters must be f32 or bf16.
  Status check_gradient(const VectorView& gradient, std::int64_t count, std::string_view operand) const {
    EGT_TRY(check_vector(gradient, operand));
    if (gradient.count != count)
      return wrong(fmt::format("{} has {} elements, not {}", operand, gradient.count, count));
    if (gradient.type == ElementType::f32 || gradient.type == ElementType::bf16) return {};
    return wrong(fmt::format("{} is {}, neither f32 nor bf16", operand, to_string(gradient.type)));
  }
  Status check_range(const ParameterRange& range) const {
    EGT_TRY(check_count(range.count, "the range"));
    EGT_TRY(check_memory(range.weights, static_cast<std::uint64_t>(range.count), "weights"));
    EGT_TRY(check_gradient(range.gradient, range.count, "gradient"));
    return check(range.compute_copy.data == nullptr || range.compute_copy.count == range.count,
                 "weights and compute_copy differ in count");
  }
  Status check_between(std::int64_t value, std::int64_t least, std::int64_t most,
                       std::string_view what) const {
    if (value >= least && value <= most) return {};
    return wrong(fmt::format("{} {} are not {} .. {}", value, what, least, most));
  }
  Status check_alignment(const void* data, std::size_t bytes, std::string_view operand) const {
    if (reinterpret_cast<std::uintptr_t>(data) % bytes == 0) return {};
    return wrong(fmt::format("{} is not on a {}-byte boundary", operand, bytes));
  }
  Status check_scratch(const void* data, std::size_t bytes, std::size_t least) const {
    EGT_TRY(check_memory(data, least, "scratch"));
    if (bytes >= least) return {};
    return wrong(fmt::format("scratch of {} bytes is less than {}", bytes, least));
  }

 private:
  std::string_view name_;
};

/// Rows and columns of op(x).
struct Shape {
  std::int64_t rows, columns;

  Shape(const MatrixView& x, bool transposed)
      : rows(transposed ? x.columns : x.rows), columns(transposed ? x.rows : x.columns) {}
};

Status check_types(const Arguments& operation, const Gemm& gemm) {
  const ElementType stored = storage_type(gemm.precision), a = gemm.a.type, b = gemm.b.type, d = gemm.d.type;
  const bool are_quantized = gemm.precision == Precision::fp8 && is_quantized(a) && is_quantized(b) &&
                             (a == ElementType::f8 || b == ElementType::f8);
  const bool is_wide =
      d == sum_type(gemm.precision) || (d == activation_type(gemm.precision) && d != ElementType::i8);
  if (((a == stored && b == stored) || are_quantized) && is_wide) return {};
  return operation.wrong(fmt::format("a {} GEMM cannot compute {} times {} into {}",
                                     to_string(gemm.precision), to_string(gemm.a.type),
                                     to_string(gemm.b.type), to_string(d)));
}

/// Restrictions of tensor cores on 8-bit operands.
Status check_narrow(const Arguments& operation, const Gemm& gemm) {
  constexpr std::int64_t multiple = 16;
  EGT_TRY(operation.check(gemm.a.columns > 0, "8-bit operands of no columns"));
  EGT_TRY(operation.check(!gemm.a_transposed && gemm.b_transposed, "8-bit operands are multiplied as A B^T"));
  EGT_TRY(operation.check(gemm.alpha == 1 && gemm.beta == 0, "of 8-bit operands alpha is 1 and beta 0"));
  for (const MatrixView& m : {gemm.a, gemm.b, gemm.d})
    EGT_TRY(operation.check(m.rows % multiple == 0 && m.columns % multiple == 0 &&
                                m.leading % multiple == 0 &&
                                reinterpret_cast<std::uintptr_t>(m.data) % multiple == 0,
                            "of 8-bit operands all sizes and addresses are multiples of 16"));
  return {};
}

/// Checks a GEMM with fused bias and ReLU.
Status check_relu_bias(const Arguments& operation, const Gemm& gemm) {
  const VectorView& bias = gemm.relu_bias;
  const ElementType type = gemm.d.type;
  EGT_TRY(operation.check(bias.type == type && bias.count == gemm.d.columns,
                          "the bias has not d's type and an element a column"));
  EGT_TRY(
      operation.check(!is_narrow(gemm.precision) &&
                          (type == ElementType::f32 || type == ElementType::f16 || type == ElementType::bf16),
                      "only GEMMs of f32, f16 and bf16 accept a bias"));
  EGT_TRY(operation.check(gemm.alpha == 1 && gemm.beta == 0, "with a bias alpha is 1 and beta 0"));
  EGT_TRY(operation.check(gemm.a.count() > 0 || gemm.d.count() == 0, "a bias of no product"));
  return operation.check(reinterpret_cast<std::uintptr_t>(bias.data) % Gemm::bias_alignment == 0,
                         "a bias lies at no multiple of 16 bytes");
}

Status check_grid(const Arguments& operation, const VoxelGrid& grid) {
  for (int axis = 0; axis < 3; ++axis) {
    const float min = grid.min[axis], max = grid.max[axis];
    if (!std::isfinite(min) || !std::isfinite(max) || !(min < max))
      return operation.wrong(fmt::format("a grid cannot reach from {} to {}", min, max));
    if (const std::int32_t dim = grid.dims[axis]; dim < 1 || dim > VoxelGrid::max_dims)
      return operation.wrong(
          fmt::format("{} voxels along an axis are not 1 .. {}", dim, VoxelGrid::max_dims));
  }
  return {};
}

/// Limits sizes, so that rows and the numbers of a batch element in the second pass fit 32-bit indices.
Status check_fusion_shape(const Arguments& operation, const FusionShape& shape) {
  constexpr std::int64_t most = std::int64_t{1} << 30;
  EGT_TRY(operation.check(shape.streams >= 1 && shape.streams <= max_fusion_streams,
                          "there must be 1 to 4 streams"));
  EGT_TRY(operation.check_between(shape.batch, 0, 1 << 24, "batch elements"));
  EGT_TRY(operation.check_between(shape.steps, 0, most, "steps"));
  for (int s = 0; s < shape.streams; ++s) {
    EGT_TRY(operation.check_between(shape.samples[s], 0, most, "samples"));
    EGT_TRY(operation.check_between(shape.dims[s], 1, most, "numbers a sample"));
  }
  return operation.check_between(shape.steps * shape.total_dims(), 0, 4 * most - 1,
                                 "numbers of a batch element");
}

Status check(const Arguments& operation, const Copy& call) {
  EGT_TRY(operation.check_memory(call.to, call.bytes, "to"));
  return operation.check_memory(call.from, call.bytes, "from");
}

Status check(const Arguments& operation, const SetZero& call) {
  return operation.check_memory(call.data, call.bytes, "data");
}

Status check(const Arguments& operation, const Gemm& gemm) {
  EGT_TRY(operation.check_matrix_of_any_type(gemm.a, "a"));
  EGT_TRY(operation.check_matrix_of_any_type(gemm.b, "b"));
  EGT_TRY(operation.check_matrix_of_any_type(gemm.d, "d"));
  EGT_TRY(check_types(operation, gemm));
  EGT_TRY(operation.check(gemm.precision == Precision::fp8 || (!gemm.a_scale && !gemm.b_scale),
                          "only fp8 has operands with a scale"));
  for (const float* scale : {gemm.a_scale, gemm.b_scale})
    EGT_TRY(operation.check(reinterpret_cast<std::uintptr_t>(scale) % Gemm::scale_alignment == 0,
                            "a scale lies at no multiple of 16 bytes"));
  if (is_narrow(gemm.precision)) EGT_TRY(check_narrow(operation, gemm));
  if (gemm.relu_bias.data != nullptr) EGT_TRY(check_relu_bias(operation, gemm));
  const Shape a(gemm.a, gemm.a_transposed), b(gemm.b, gemm.b_transposed);
  if (a.columns == b.rows && gemm.d.rows == a.rows && gemm.d.columns == b.columns) return {};
  return operation.wrong(fmt::format("op(a), {} x {}, times op(b), {} x {}, is not d, {} x {}", a.rows,
                                     a.columns, b.rows, b.columns, gemm.d.rows, gemm.d.columns));
}

Status check(const Arguments& operation, const VerifyGemm& call) {
  EGT_TRY(check(operation, call.gemm));
  EGT_TRY(operation.check(call.gemm.alpha == 1 && call.gemm.beta == 0, "alpha is not 1 or beta is not 0"));
  return operation.check_memory(call.report, 1, "report");
}

Status check(const Arguments& operation, const VerifyExactGemm& call) {
  const Gemm& gemm = call.gemm;
  EGT_TRY(check(operation, VerifyGemm{gemm, call.report}));
  EGT_TRY(operation.check(!gemm.a_transposed && gemm.b_transposed, "a is transposed or b is not"));
  EGT_TRY(operation.check(!gemm.a_scale && !gemm.b_scale && gemm.relu_bias.data == nullptr,
                          "a scale or a bias is given"));
  const ElementType operands = storage_type(gemm.precision);
  EGT_TRY(operation.check(
      gemm.a.type == operands && gemm.b.type == operands && gemm.d.type == sum_type(gemm.precision),
      "the types are not those of operands and accumulator"));
  for (const MatrixView* m : {&gemm.a, &gemm.b, &gemm.d})
    EGT_TRY(operation.check(m->columns % 16 == 0 && m->columns <= VerifyExactGemm::max_exact_columns &&
                                m->leading == m->columns &&
                                reinterpret_cast<std::uintptr_t>(m->data) % 16 == 0,
                            "a matrix has gaps, is not aligned to 16 bytes, or has a number of columns that "
                            "is no multiple of 16, or is too large"));
  return operation.check(std::abs(call.granule) < 1000, "the granule is out of range");
}

Status check(const Arguments& operation, const Quantization& call) {
  EGT_TRY(operation.check_matrix(call.x, "x"));
  EGT_TRY(operation.check(call.x.type == ElementType::f32 || call.x.type == ElementType::bf16,
                          "x is neither f32 nor bf16"));
  EGT_TRY(operation.check_memory(call.scale, 1, "scale"));
  const auto check_copy = [&](const MatrixView& m, std::int64_t rows, std::int64_t columns,
                              std::string_view name) -> Status {
    if (m.data == nullptr) return {};
    EGT_TRY(operation.check_matrix_of_any_type(m, name));
    EGT_TRY(operation.check(is_quantized(m.type), "a copy is neither f8 nor f8_e5m2"));
    return operation.check(m.rows == rows && m.columns == columns, "a copy differs from x in shape");
  };
  EGT_TRY(check_copy(call.copy, call.x.rows, call.x.columns, "copy"));
  EGT_TRY(check_copy(call.transposed, call.x.columns, call.x.rows, "transposed"));
  const bool both = call.copy.data != nullptr && call.transposed.data != nullptr;
  EGT_TRY(operation.check(call.copy.data != nullptr || call.transposed.data != nullptr, "no copy is wanted"));
  return operation.check(!both || call.copy.type == call.transposed.type, "the copies differ in type");
}

Status check(const Arguments& operation, const Cast& call) {
  EGT_TRY(operation.check_vector(call.to, "to"));
  EGT_TRY(operation.check_vector(call.from, "from"));
  return operation.check(call.to.count == call.from.count, "to and from differ in count");
}

Status check(const Arguments& operation, const Randomize& call) {
  return operation.check_vector(call.out, "out");
}

Status check(const Arguments& operation, const Activation& call) {
  const auto& [h, bias, extreme] = call;
  EGT_TRY(operation.check_matrix(h, "h"));
  EGT_TRY(operation.check_memory(bias, static_cast<std::uint64_t>(h.columns), "bias"));
  EGT_TRY(operation.check(extreme.iterations >= 0, "extreme.iterations is below 0"));
  EGT_TRY(operation.check(extreme.first_row >= 0, "extreme.first_row is below 0"));
  EGT_TRY(operation.check(extreme.digest == nullptr || extreme.iterations > 0,
                          "extreme.digest without extreme.iterations"));
  EGT_TRY(operation.check(extreme.fault.count == 0 || extreme.digest != nullptr,
                          "extreme.fault without extreme.digest"));
  return operation.check(extreme.fault.stride > 0, "extreme.fault.stride is 0");
}

Status check(const Arguments& operation, const ActivationGradient& call) {
  const auto& [gradient, h, bias_gradient] = call;
  EGT_TRY(operation.check_matrix(gradient, "gradient"));
  EGT_TRY(operation.check_matrix(h, "h"));
  EGT_TRY(operation.check(gradient.rows == h.rows && gradient.columns == h.columns,
                          "gradient and h differ in shape"));
  EGT_TRY(operation.check(gradient.type == h.type, "gradient and h differ in type"));
  return operation.check_gradient(bias_gradient, gradient.columns, "bias_gradient");
}

Status check(const Arguments& operation, const LossGradient& call) {
  EGT_TRY(operation.check_matrix(call.z, "z"));
  EGT_TRY(operation.check_matrix(call.x, "x"));
  EGT_TRY(operation.check(call.z.rows == call.x.rows, "z and x differ in rows"));
  EGT_TRY(operation.check(call.z.type == call.x.type, "z and x differ in type"));
  EGT_TRY(operation.check(call.z.count() == 0 || call.x.columns > 0, "x has no columns"));
  EGT_TRY(operation.check_memory(call.bias, static_cast<std::uint64_t>(call.z.columns), "bias"));
  EGT_TRY(operation.check_memory(call.loss, 1, "loss"));
  return operation.check_gradient(call.bias_gradient, call.z.columns, "bias_gradient");
}

Status check(const Arguments& operation, const SoftmaxLoss& call) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const MatrixView& logits = call.logits;
  EGT_TRY(operation.check_matrix(logits, "logits"));
  EGT_TRY(operation.check(logits.type == ElementType::f32 || logits.type == ElementType::bf16,
                          "logits are neither f32 nor bf16"));
  EGT_TRY(operation.check(logits.rows == 0 || logits.columns > 0, "logits have no columns"));
  EGT_TRY(
      operation.check(logits.rows <= most && logits.columns <= most, "logits have too many rows or columns"));
  EGT_TRY(operation.check(call.labels == nullptr || call.first_label == 0,
                          "first_label and labels are both set"));
  return operation.check(std::isfinite(call.gradient_scale), "gradient_scale is not finite");
}

Status check(const Arguments& operation, const OptimizerStep& call) {
  EGT_TRY(operation.check_range(call.range));
  const auto count = static_cast<std::uint64_t>(call.range.count);
  if (const auto* sgd = std::get_if<math::Sgd>(&call.rule))
    return sgd->momentum == 0.0f ? Status() : operation.check_memory(call.first, count, "velocity");
  EGT_TRY(operation.check_memory(call.first, count, "first"));
  return operation.check_memory(call.second, count, "second");
}

/// Checks a vector that sparse elements index.
Status check_sparse(const Arguments& operation, const VectorView& vector, std::string_view operand) {
  EGT_TRY(operation.check_vector(vector, operand));
  EGT_TRY(operation.check(vector.type == ElementType::f32, fmt::format("{} is not f32", operand)));
  return operation.check(vector.count >> 32 == 0, fmt::format("{} has 2^32 elements or more", operand));
}

Status check(const Arguments& operation, const TopKSelection& call) {
  const auto count = static_cast<std::uint64_t>(call.gradient.count);
  EGT_TRY(check_sparse(operation, call.gradient, "gradient"));
  EGT_TRY(operation.check_memory(call.residual, count, "residual"));
  EGT_TRY(operation.check(call.selected.count >= 0 && call.selected.count <= call.gradient.count,
                          "selected is not of 0 to gradient.count elements"));
  EGT_TRY(operation.check_memory(call.selected.data, static_cast<std::uint64_t>(call.selected.count),
                                 "selected"));
  return operation.check_memory(call.scratch, count, "scratch");
}

Status check(const Arguments& operation, const ScatterAdd& call) {
  const auto& [sum, elements] = call;
  EGT_TRY(check_sparse(operation, sum, "sum"));
  EGT_TRY(operation.check_count(elements.count, "the list"));
  return operation.check_memory(elements.data, static_cast<std::uint64_t>(elements.count), "elements");
}

Status check(const Arguments& operation, const Add& call) {
  const auto& [sum, term] = call;
  EGT_TRY(operation.check_gradient(sum, sum.count, "sum"));
  EGT_TRY(operation.check_gradient(term, sum.count, "term"));
  return operation.check(sum.type == term.type, "sum and term differ in type");
}

Status check(const Arguments& operation, const Fill& call) {
  return operation.check_words(call.words);
}

Status check(const Arguments& operation, const Reset& call) {
  return operation.check_memory(call.report, 1, "report");
}

Status check(const Arguments& operation, const Verify& call) {
  EGT_TRY(operation.check_words(call.words));
  return operation.check_memory(call.report, 1, "report");
}

Status check(const Arguments& operation, const VerifyAndFill& call) {
  EGT_TRY(operation.check_words(call.words));
  return operation.check_memory(call.report, 1, "report");
}

Status check(const Arguments& operation, const VerifySum& call) {
  const auto& [sum, terms, count, report] = call;
  EGT_TRY(operation.check_gradient(sum, sum.count, "sum"));
  EGT_TRY(operation.check(sum.count <= std::numeric_limits<std::uint32_t>::max(), "sum has 2^32 elements"));
  EGT_TRY(operation.check(count >= 1, "there are no terms"));
  EGT_TRY(operation.check_memory(terms, static_cast<std::uint64_t>(sum.count), "terms"));
  return operation.check_memory(report, 1, "report");
}

Status check(const Arguments& operation, const DigestWords& call) {
  EGT_TRY(operation.check_words(call.words));
  return operation.check_memory(call.digest, 1, "digest");
}

Status check(const Arguments& operation, const SumWords& call) {
  EGT_TRY(operation.check_words(call.words));
  return operation.check_memory(call.sums, 1, "sums");
}

Status check(const Arguments& operation, const SineExponential& call) {
  EGT_TRY(operation.check_words(call.words));
  EGT_TRY(operation.check(call.iterations >= 0, "iterations is below 0"));
  return operation.check_memory(call.digest, 1, "digest");
}

Status check(const Arguments& operation, const UnitVote& call) {
  EGT_TRY(operation.check(call.iterations >= 1, "iterations is below 1"));
  return operation.check_memory(call.answers, 1, "answers");
}

Status check(const Arguments& operation, const FlipWords& call) {
  EGT_TRY(operation.check_words(call.words));
  return operation.check(call.words.count > 0 || call.flip.count == 0, "there are no words to flip");
}

Status check(const Arguments& operation, const Voxelization& call) {
  EGT_TRY(check_grid(operation, call.grid));
  if (call.count < 0 || call.count > Voxelization::max_points)
    return operation.wrong(fmt::format("{} points are not 0 .. {}", call.count, Voxelization::max_points));
  EGT_TRY(operation.check_memory(call.points, static_cast<std::uint64_t>(call.count), "points"));
  EGT_TRY(operation.check_memory(call.occupancy, 1, "occupancy"));
  EGT_TRY(operation.check_memory(call.features, 1, "features"));
  EGT_TRY(operation.check_alignment(call.features, alignof(VoxelFeatures), "features"));
  EGT_TRY(operation.check_memory(call.counts, 1, "counts"));
  EGT_TRY(operation.check_alignment(call.scratch, 256, "scratch"));
  return operation.check_scratch(call.scratch, call.scratch_bytes,
                                 voxelization_scratch_bytes(call.count, call.grid));
}

Status check(const Arguments& operation, const StreamFusion& call) {
  const FusionShape& shape = call.shape;
  EGT_TRY(check_fusion_shape(operation, shape));
  for (int s = 0; s < shape.streams; ++s) {
    const auto samples = static_cast<std::uint64_t>(shape.batch * shape.samples[s]);
    EGT_TRY(operation.check_memory(call.times[s], samples, "times"));
    EGT_TRY(operation.check_memory(call.values[s], samples, "values"));
  }
  const auto steps = static_cast<std::uint64_t>(shape.batch * shape.steps);
  EGT_TRY(operation.check_memory(call.timeline, steps, "timeline"));
  EGT_TRY(operation.check_memory(call.fused, steps, "fused"));
  EGT_TRY(operation.check_memory(call.dropped, static_cast<std::uint64_t>(shape.batch), "dropped"));
  EGT_TRY(operation.check_alignment(call.scratch, alignof(math::Bracket), "scratch"));
  return operation.check_scratch(call.scratch, call.scratch_bytes, fusion_scratch_bytes(shape));
}

Status check(const Arguments& operation, const WriteSignal& call) {
  return operation.check_memory(call.signal, 1, "signal");
}

Status check(const Arguments& operation, const AwaitSignal& call) {
  return operation.check_memory(call.signal, 1, "signal");
}

template <typename T>
constexpr bool needs_scratch =
    std::is_same_v<T, Gemm> || std::is_same_v<T, ActivationGradient> || std::is_same_v<T, LossGradient>;

}  // namespace

Status check_times(const char* operation, const Event& from, const Event& to) {
  const bool are_timed = from.use() == EventUse::timing && to.use() == EventUse::timing;
  return Arguments(operation).check(are_timed, "an event created for order has no time");
}

Status check_takes_products(const Stream& stream) {
  return Arguments("a stream").check(stream.use() == StreamUse::all, "it was made for no products");
}

Status check_signals(const void* pages, std::size_t bytes) {
  constexpr std::uintptr_t page = 4096;
  constexpr Arguments operation("register_signals");
  EGT_TRY(operation.check(pages != nullptr && bytes > 0, "there is no memory to register"));
  return operation.check(reinterpret_cast<std::uintptr_t>(pages) % page == 0, "the memory begins no page");
}

Status check_allocate_shared(std::size_t bytes) {
  return Arguments("allocate_shared").check(bytes > 0, "there is nothing to share in 0 bytes");
}

Status Device::enqueue(const Operation& operation, Stream& stream) {
  EGT_TRY(std::visit(
      [&]<typename T>(const T& call) -> Status {
        if constexpr (needs_scratch<T>) EGT_TRY(check_takes_products(stream));
        return check(Arguments(T::name), call);
      },
      operation));
  return enqueue_checked(operation, stream);
}

}  // namespace egt
