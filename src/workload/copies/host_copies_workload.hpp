#pragma once

#include <array>
#include <cstdint>

#include "workload/copies/paced_copies.hpp"

namespace egt {

/// Copies chunks of device memory to pinned host memory and back into another buffer, in both directions
/// concurrently. Each round trip has its own pattern, so that a copy that does nothing is detected.
class HostCopiesWorkload : public Workload {
 public:
  explicit HostCopiesWorkload(Environment& environment);

  std::string name() const override { return "host-copies"; }
  Status prepare() override;
  Status start() override { return copies_.start(); }
  Status enqueue(const Step& step) override {
    copies_.set_step(step.index);
    return {};
  }
  /// Returns the thread's error.
  Status retire(std::int64_t, StepOutcome&) override { return copies_.failure(); }
  void stop_background() override { copies_.ask_to_stop(); }
  Status finish(const Shutdown& ending) override { return copies_.finish(ending).status(); }
  PartReport report() const override;

 private:
  struct Chunk {
    std::array<Buffer, 2> device;  ///< a trip starts in one and ends in the other, alternately
    /// Pinned. Two, so that a trip's data are still there when it is judged.
    std::array<Buffer, OperationPipeline::slots> host;
  };

  WordsView words(const Chunk& chunk, std::uint64_t trip) const {
    return copies_.words(chunk.device[trip % chunk.device.size()]);
  }
  const Buffer& host_of(std::size_t chunk, std::uint64_t trip) const {
    return chunks_[chunk].host[trip % OperationPipeline::slots];
  }
  Pattern pattern(std::size_t chunk, std::uint64_t trip) const;
  std::string place_of(std::size_t chunk, std::uint64_t trip, const Mismatches* found) const;
  Result<PacedCopies::Brought> copy(std::size_t chunk, std::uint64_t trip, Stream& stream);

  Environment& environment_;
  std::array<Chunk, PacedCopies::chunks> chunks_;
  PacedCopies copies_;  ///< last: its streams finish before the memory is freed
};

}  // namespace egt
