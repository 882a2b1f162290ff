#include <limits>
#include <vector>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

using math::Bracket;

constexpr std::int64_t rows_per_task = 1;  ///< one is enough work: a row has thousands of sample times

/// running[i] = the running max of the row's finite times. Returns how many samples increased it.
std::int64_t scan_times(const double* times, std::vector<double>& running) {
  double reached = -std::numeric_limits<double>::infinity();
  std::int64_t counting = 0;
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (math::is_finite(times[i]) && times[i] > reached) {
      reached = times[i];
      ++counting;
    }
    running[i] = reached;
  }
  return counting;
}

/// Finds the brackets of all timeline steps in one row: a batch element's samples of one stream.
void find_brackets(const StreamFusion& call, std::int64_t row, Bracket* brackets) {
  const FusionShape& shape = call.shape;
  const std::int64_t element = row / shape.streams, samples = shape.samples[row % shape.streams];
  const double* const timeline = call.timeline + element * shape.steps;
  std::vector<double> running(static_cast<std::size_t>(samples));
  const std::int64_t counting = scan_times(call.times[row % shape.streams] + element * samples, running);
  call.dropped[row] = static_cast<std::uint32_t>(samples - counting);
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    math::BracketSearch search(timeline[step]);
    search.look(running.data(), static_cast<std::int32_t>(samples), 0,
                -std::numeric_limits<double>::infinity());
    brackets[row * shape.steps + step] = search.bracket();
  }
}

void interpolate_sample(const float* values, std::int64_t dim, const Bracket& bracket, float* out) {
  if (bracket.left < 0) {
    std::fill(out, out + dim, 0.0f);
    return;
  }
  const float *const left = values + bracket.left * dim, *const right = values + bracket.right * dim;
  for (std::int64_t i = 0; i < dim; ++i) out[i] = math::interpolate(left[i], right[i], bracket.weight);
}

/// Interpolates one step of one batch element in all streams. `row`: batch element * steps + step.
void fuse_step(const StreamFusion& call, std::int64_t row, const Bracket* brackets) {
  const FusionShape& shape = call.shape;
  const std::int64_t element = row / shape.steps, step = row % shape.steps;
  float* out = call.fused + row * shape.total_dims();
  for (int s = 0; s < shape.streams; ++s) {
    const std::int64_t dim = shape.dims[s];
    interpolate_sample(call.values[s] + element * shape.samples[s] * dim, dim,
                       brackets[(element * shape.streams + s) * shape.steps + step], out);
    out += dim;
  }
}

void run_fuse(const StreamFusion& call, HostStream& stream) {
  const FusionShape& shape = call.shape;
  Bracket* const brackets = static_cast<Bracket*>(call.scratch);
  for_ranges(stream, shape.batch * shape.streams, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) find_brackets(call, row, brackets);
  });
  for_ranges(stream, shape.batch * shape.steps, rows_per_chunk(shape.total_dims(), chunk_elements),
             [&](std::int64_t begin, std::int64_t end) {
               for (std::int64_t row = begin; row < end; ++row) fuse_step(call, row, brackets);
             });
}

}  // namespace

void run(const StreamFusion& call, HostStream& stream) {
  run_fuse(call, stream);
}

}  // namespace egt::host
