#include <atomic>
#include <vector>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

template <typename T>
using Compute = typename Element<T>::compute;

template <typename T>
void activate_row(T* __restrict h, const float* __restrict bias, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c)
    h[c] = Element<T>::store(math::activation(Element<T>::load(h[c]) + static_cast<Compute<T>>(bias[c])));
}

template <typename T>
void activate_extreme_row(const MatrixView& h, const float* bias, std::int64_t r, const ExtremeTerm& extreme,
                          Digest& digest) {
  T* const elements = row<T>(h, r);
  for (std::int64_t c = 0; c < h.columns; ++c) {
    const auto index = static_cast<std::uint64_t>(r * h.columns + c);
    const auto place = static_cast<std::uint64_t>((extreme.first_row + r) * h.columns + c);
    math::ChainFault fault;
    if (extreme.fault.hits(index)) fault = {extreme.fault_turn, extreme.fault.mask};
    const auto result =
        math::extreme_activation(Element<T>::load(elements[c]) + static_cast<Compute<T>>(bias[c]),
                                 math::extreme_phase(place), extreme.iterations, fault);
    elements[c] = Element<T>::store(result.h);
    if (extreme.digest != nullptr) add_to_digest(digest.a, digest.b, index, result.bits);
  }
}

template <typename T>
void activation_gradient_row(T* __restrict gradient, const T* __restrict h, Compute<T>* __restrict sums,
                             std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) {
    const Compute<T> g = math::activation_gradient(Element<T>::load(gradient[c]), Element<T>::load(h[c]));
    gradient[c] = Element<T>::store(g);
    sums[c] += g;
  }
}

std::int64_t count_tiles(std::int64_t rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

/// Calls body(row, sums of the row's tile) for every row; threads share the tiles. `tiles`: count_tiles(rows)
/// x columns, set to 0 here.
template <typename C, typename Body>
void sum_tiles(HostStream& stream, std::int64_t rows, std::int64_t columns, C* tiles, const Body& body) {
  for_ranges(stream, rows, tile_rows, [&](std::int64_t begin, std::int64_t end) {
    C* const sums = tiles + begin / tile_rows * columns;
    std::fill(sums, sums + columns, C(0));
    for (std::int64_t r = begin; r < end; ++r) body(r, sums);
  });
}

/// out = the tiles' sums, added from the first tile to the last.
template <typename C>
void store_column_sums(const C* tiles, std::int64_t tile_count, const VectorView& out) {
  std::vector<C> sums(static_cast<std::size_t>(out.count), C(0));
  for (std::int64_t tile = 0; tile < tile_count; ++tile)
    for (std::int64_t c = 0; c < out.count; ++c)
      sums[static_cast<std::size_t>(c)] += tiles[tile * out.count + c];
  with_type(out.type, [&]<typename T>(std::type_identity<T>) {
    for (std::int64_t c = 0; c < out.count; ++c)
      static_cast<T*>(out.data)[c] = convert_element<T>(sums[static_cast<std::size_t>(c)]);
  });
}

template <typename T>
Status run_activation_gradient(const MatrixView& gradient, const MatrixView& h, const VectorView& bias,
                               HostStream& stream) {
  using C = Compute<T>;
  const std::int64_t columns = gradient.columns, tile_count = count_tiles(gradient.rows);
  EGT_TRY_ASSIGN(std::byte* const scratch,
                 stream.scratch(static_cast<std::size_t>(tile_count * columns) * sizeof(C)));
  C* const tiles = reinterpret_cast<C*>(scratch);
  sum_tiles(stream, gradient.rows, columns, tiles, [&](std::int64_t r, C* sums) {
    activation_gradient_row(row<T>(gradient, r), row<const T>(h, r), sums, columns);
  });
  store_column_sums(tiles, tile_count, bias);
  return {};
}

/// Sample-independent part of an output's target.
struct TargetColumn {
  float offset;
  math::TargetTap taps[math::target_taps];
};

std::vector<TargetColumn> make_targets(std::uint64_t seed, std::int64_t outputs, std::int64_t inputs) {
  std::vector<TargetColumn> targets(static_cast<std::size_t>(outputs));
  for (std::size_t j = 0; j < targets.size(); ++j) {
    const auto output = static_cast<std::uint32_t>(j);
    targets[j].offset = math::target_offset(seed, output);
    for (int tap = 0; tap < math::target_taps; ++tap)
      targets[j].taps[tap] = math::target_tap(seed, output, tap, static_cast<std::uint32_t>(inputs));
  }
  return targets;
}

/// Replaces one row of z by its gradient and adds it to `sums`. Returns the row's sum of squares.
template <typename T>
double loss_row(const LossGradient& call, const std::vector<TargetColumn>& targets, std::int64_t r,
                Compute<T>* sums) {
  using C = Compute<T>;
  T* const z = row<T>(call.z, r);
  const T* const x = row<const T>(call.x, r);
  double loss = 0;
  for (std::int64_t j = 0; j < call.z.columns; ++j) {
    const TargetColumn& target = targets[static_cast<std::size_t>(j)];
    C y = static_cast<C>(target.offset);
    for (const math::TargetTap& tap : target.taps)
      y += static_cast<C>(tap.weight) * Element<T>::load(x[tap.input]);
    const C difference = Element<T>::load(z[j]) + static_cast<C>(call.bias[j]) - y;
    z[j] = Element<T>::store(difference * static_cast<C>(call.gradient_scale));
    sums[j] += Element<T>::load(z[j]);
    loss += static_cast<double>(difference) * static_cast<double>(difference);
  }
  return loss;
}

template <typename T>
Status run_loss_gradient(const LossGradient& call, HostStream& stream) {
  using C = Compute<T>;
  const std::int64_t rows = call.z.rows, outputs = call.z.columns, tile_count = count_tiles(rows);
  EGT_TRY_ASSIGN(std::byte* const scratch,
                 stream.scratch(static_cast<std::size_t>(tile_count * outputs) * sizeof(C)));
  C* const tiles = reinterpret_cast<C*>(scratch);
  const std::vector<TargetColumn> targets = make_targets(call.target_seed, outputs, call.x.columns);
  std::vector<double> losses(static_cast<std::size_t>(rows));
  sum_tiles(stream, rows, outputs, tiles, [&](std::int64_t r, C* sums) {
    losses[static_cast<std::size_t>(r)] = loss_row<T>(call, targets, r, sums);
  });
  store_column_sums(tiles, tile_count, call.bias_gradient);
  double loss = 0;
  for (const double of_row : losses) loss += of_row;
  *call.loss = static_cast<float>(loss);
  return {};
}

}  // namespace

void run(const Activation& call, HostStream& stream) {
  const auto& [h, bias, extreme] = call;
  const bool plain = extreme.iterations == 0;
  std::atomic<std::uint64_t> total_a{0}, total_b{0};
  with_type(h.type, [&]<typename T>(std::type_identity<T>) {
    const std::int64_t chunk = rows_per_chunk(h.columns, plain ? chunk_elements : costly_chunk_elements);
    for_ranges(stream, h.rows, chunk, [&](std::int64_t begin, std::int64_t end) {
      Digest digest;
      for (std::int64_t r = begin; r < end; ++r) {
        if (plain)
          activate_row(row<T>(h, r), bias, h.columns);
        else
          activate_extreme_row<T>(h, bias, r, extreme, digest);
      }
      total_a += digest.a;
      total_b += digest.b;
    });
  });
  if (extreme.digest != nullptr) *extreme.digest = {total_a, total_b};
}

Status run(const ActivationGradient& call, HostStream& stream) {
  const auto& [gradient, h, bias_gradient] = call;
  return with_type(gradient.type, [&]<typename T>(std::type_identity<T>) {
    return run_activation_gradient<T>(gradient, h, bias_gradient, stream);
  });
}

Status run(const LossGradient& call, HostStream& stream) {
  return with_type(call.z.type,
                   [&]<typename T>(std::type_identity<T>) { return run_loss_gradient<T>(call, stream); });
}

}  // namespace egt::host
