#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "egt/device/device.hpp"

namespace egt {

/// Known answers of the patrol's chain of sines and exponentials: the same inputs each time and on every
/// rank, as many as keep a device busy, the results digested.
class TranscendentalCheck {
 public:
  static constexpr const char* name = "the sine and exponential chain";

  /// `iterations`: turns of each chain, above 0. `device` outlives the check.
  TranscendentalCheck(Device& device, std::uint64_t seed, int iterations)
      : device_(device), seed_(seed), iterations_(iterations) {}

  Status prepare();
  /// On a stream of its own; `answer`: device memory for the digest of all chains, valid on `stream` from
  /// here on.
  Status enqueue(Digest* answer, Stream& stream);
  /// How many chains there are, each on one word.
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
