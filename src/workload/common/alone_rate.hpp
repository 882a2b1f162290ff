#pragma once

#include <functional>
#include <map>

#include "egt/device/device.hpp"

/// How fast the device does one kind of work with nothing beside it, measured before the load begins: what
/// the shares of the entry `load` are compared with. Each call enqueues in `stream`, waits, and takes some
/// milliseconds.
namespace egt {

constexpr double measured_ms = 3;

/// Units per second of an operation of `units`, enqueued again and again, in the fastest of several windows
/// of at least `least_ms` each. The fastest, because all that disturbs a window makes it longer: clocks that
/// still rise, other processes, and a host thread that loses its core while the device waits for work. The
/// first operation is not timed.
Result<double> rate_alone(Device& device, Stream& stream, double units,
                          const std::function<Status()>& enqueue, double least_ms = measured_ms);

/// FLOP/s of square products.
using ProductRates = std::map<Precision, double>;
/// Of products as large as is worth while on the device: up to 8192^3, in a 64th of its
/// memory. Operands are finite numbers whose products add up.
Result<double> product_rate_alone(Device& device, Stream& stream, Precision precision,
                                  double least_ms = measured_ms);

/// Turns a second of the extreme term's chains, on fp32 activations. `iterations`: turns of a chain, above 0.
Result<double> extreme_rate_alone(Device& device, Stream& stream, int iterations,
                                  double least_ms = measured_ms);
/// Chains so many times as long are bound by their own instructions only: reading, writing and beginning do
/// not count any more. Those of more turns than that are long by themselves.
constexpr int longer_chains = 10, most_short_turns = 200;

/// Bytes a second of reading words, with next to nothing done to them.
Result<double> read_rate_alone(Device& device, Stream& stream, WordsView words);

}  // namespace egt
