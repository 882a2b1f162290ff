#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "egt/core/clock.hpp"
#include "egt/device/host/host_device.hpp"
#include "egt/workload/workload.hpp"
#include "single_rank_communicator.hpp"

namespace egt::test {

/// Passes every call on to another device; a test overrides what shall go wrong.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : to_(std::move(device)) {}

  const DeviceInfo& info() const override { return to_->info(); }
  Support supports(Precision precision) const override { return to_->supports(precision); }
  Result<MemoryInfo> memory() const override { return to_->memory(); }
  Result<Buffer> allocate(std::size_t bytes) override { return to_->allocate(bytes); }
  Result<Buffer> allocate_pinned(std::size_t bytes) override { return to_->allocate_pinned(bytes); }
  Result<std::unique_ptr<Stream>> create_stream(StreamPriority p) override { return to_->create_stream(p); }
  Result<std::unique_ptr<Event>> create_event() override { return to_->create_event(); }
  Status record(Event& event, Stream& s) override { return to_->record(event, s); }
  Status wait(Stream& s, const Event& event) override { return to_->wait(s, event); }
  Result<bool> done(const Event& event) override { return to_->done(event); }
  Result<double> elapsed_ms(const Event& a, const Event& b) override { return to_->elapsed_ms(a, b); }
  Result<double> busy_ms(const Event& a, const Event& b) override { return to_->busy_ms(a, b); }
  Status synchronize(Stream& s, double seconds) override { return to_->synchronize(s, seconds); }
  Status forget_failure(Stream& s, double seconds) override { return to_->forget_failure(s, seconds); }
  Status copy(void* to, const void* from, std::size_t n, Stream& s) override {
    return to_->copy(to, from, n, s);
  }
  Status set_zero(void* data, std::size_t n, Stream& s) override { return to_->set_zero(data, n, s); }
  Status gemm(const Gemm& gemm, Stream& s) override { return to_->gemm(gemm, s); }
  Status cast(VectorView to, VectorView from, Stream& s) override { return to_->cast(to, from, s); }
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& s) override {
    return to_->randomize(out, sequence, s);
  }
  Status activate(MatrixView h, const float* bias, int iterations, Stream& s) override {
    return to_->activate(h, bias, iterations, s);
  }
  Status activation_gradient(MatrixView g, MatrixView h, VectorView bias, Stream& s) override {
    return to_->activation_gradient(g, h, bias, s);
  }
  Status loss_gradient(const LossGradient& call, Stream& s) override { return to_->loss_gradient(call, s); }
  Status sgd_step(const ParameterRange& range, float* v, const math::Sgd& rule, Stream& s) override {
    return to_->sgd_step(range, v, rule, s);
  }
  Status adam_step(const ParameterRange& range, float* m, float* v, const math::Adam& rule,
                   Stream& s) override {
    return to_->adam_step(range, m, v, rule, s);
  }
  Status fill(WordsView words, const Pattern& pattern, Stream& s) override {
    return to_->fill(words, pattern, s);
  }
  Status reset(Mismatches* report, Stream& s) override { return to_->reset(report, s); }
  Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& s) override {
    return to_->verify(words, expected, report, s);
  }
  Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                         Mismatches* report, Stream& s) override {
    return to_->verify_and_fill(words, expected, next, direction, report, s);
  }
  Status digest(WordsView words, Digest* digest, Stream& s) override { return to_->digest(words, digest, s); }
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& s) override {
    return to_->sine_exponential(words, iterations, digest, s);
  }
  Status flip(WordsView words, const Flip& flip, Stream& s) override { return to_->flip(words, flip, s); }
  Status extreme(VectorView values, int iterations, Stream& s) override {
    return to_->extreme(values, iterations, s);
  }
  Status multiply_vector(MatrixView m, bool transposed, bool absolute, const double* x, double* y,
                         Stream& s) override {
    return to_->multiply_vector(m, transposed, absolute, x, y, s);
  }

 private:
  std::unique_ptr<Device> to_;
};

constexpr std::uint64_t test_memory_bytes = 256u << 20;

inline std::unique_ptr<Device> small_host_device() {
  auto device = open_host_device(
      {.local_rank = 0, .local_size = 1, .cores = 1, .memory_total_bytes = test_memory_bytes});
  return device.ok() ? std::move(device.value()) : nullptr;
}

/// What a workload stands in: one rank with a small host device.
struct World {
  /// `faults_on_purpose`: as `--inject` takes them; this rank is 3.
  explicit World(std::unique_ptr<Device> a_device = small_host_device(),
                 std::vector<Injection> faults_on_purpose = {})
      : injections(std::move(faults_on_purpose)), device(std::move(a_device)) {}

  std::vector<Injection> injections;

  std::unique_ptr<Device> device;
  SingleRankCommunicator communicator{*device};
  RecordQueue records{0};
  RankPlace place{.rank = 3, .size = 4, .local_rank = 0, .local_size = 1, .hostname = "node7"};
  Injector injector{injections, place, records};
  ProgressBoard board;
  LoadControl load;
  Environment environment{*device, communicator, records, place, 42, injector, "test device", board, load};

  /// All faults that were emitted since the last call; notices are kept in `notices`.
  std::vector<Json> faults() {
    std::vector<Json> found;
    for (const Record& record : records.drain()) {
      if (record.kind == RecordKind::fault) found.push_back(record.body);
      if (record.kind == RecordKind::notice) notices.push_back(record.body["text"].get<std::string>());
    }
    return found;
  }
  std::vector<std::string> notices;
};

/// True as soon as `condition` is, false after 20 s.
template <typename Condition>
bool eventually(const Condition& condition) {
  const Clock::time_point start = Clock::now();
  while (!condition()) {
    if (seconds_since(start) > 20) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace egt::test
