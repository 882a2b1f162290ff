#pragma once

#include <functional>
#include <map>

#include "egt/device/device.hpp"

/// Standalone rates: throughput of one kind of work on an otherwise idle device, measured before the load
/// begins. The shares in the `load` entry are relative to them. Each call enqueues on `stream`, blocks, and
/// lasts some milliseconds.
namespace egt {

constexpr double measured_ms = 3;

/// Units per second of an operation that processes `units`. The operation is enqueued repeatedly in several
/// windows, each not shorter than `min_ms`; the fastest window counts. Every disturbance lengthens a
/// window: clocks that still ramp up, other processes, or a host thread that is preempted while the device is
/// idle. The first operation is warm-up and is not timed.
Result<double> rate_alone(Device& device, Stream& stream, double units,
                          const std::function<Status()>& enqueue, double min_ms = measured_ms);

/// FLOP/s of square GEMMs.
using ProductRates = std::map<Precision, double>;
/// Rate of a GEMM of the size at which larger ones add no speed: up to 8192^3, in at most 1/64 of device
/// memory. Operands are finite, so that no result overflows.
Result<double> product_rate_alone(Device& device, Stream& stream, Precision precision,
                                  double min_ms = measured_ms);

/// Iterations per second of transcendental chains on fp32 activations, `iterations` > 0 each.
Result<double> extreme_rate_alone(Device& device, Stream& stream, int iterations,
                                  double min_ms = measured_ms);
/// Chains this many times longer are compute-bound: loads, stores and launch overhead are negligible. Chains
/// of more than `max_short_turns` iterations need no extension.
constexpr int longer_chains = 10, max_short_turns = 200;

/// Bytes per second of a memory-read-bound digest.
Result<double> read_rate_alone(Device& device, Stream& stream, WordsView words);

}  // namespace egt
