#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "egt/core/flip.hpp"
#include "egt/device/device.hpp"

namespace egt {

/// Known answers of the chains of transcendental functions: the same inputs each time and on every rank, as
/// many as keep a device busy, each chain's results digested.
class TranscendentalCheck {
 public:
  static constexpr std::size_t chains = 2;
  static const char* name(std::size_t chain);

  /// `iterations`: turns of each chain, above 0. `device` outlives the check.
  TranscendentalCheck(Device& device, std::uint64_t seed, int iterations)
      : device_(device), seed_(seed), iterations_(iterations) {}

  Status prepare();
  /// On a stream of its own; `answers`: device memory for `chains` digests, valid on `stream` from here on.
  /// `flip`: changes words of the first chain's results on purpose.
  Status enqueue(Digest* answers, const std::optional<Flip>& flip, Stream& stream);
  /// Results of a chain, each of one word.
  std::uint64_t words() const;

 private:
  Device& device_;
  const std::uint64_t seed_;
  const int iterations_;
  Buffer values_;
  std::unique_ptr<Event> done_;
  std::unique_ptr<Stream> own_stream_;  ///< last: it waits for its work before the buffer goes
};

}  // namespace egt
