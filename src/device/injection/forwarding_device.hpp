#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "egt/device/device.hpp"

namespace egt {

/// Forwards every call to another device. Base class of devices that differ in a few calls.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> device) : to_(std::move(device)) {}

  const DeviceInfo& info() const override { return to_->info(); }
  Support supports(Precision precision) const override { return to_->supports(precision); }
  Result<MemoryInfo> memory() const override {
    return pass([&] { return to_->memory(); });
  }
  Result<Buffer> allocate(std::size_t bytes) override {
    return pass([&] { return to_->allocate(bytes); });
  }
  Result<Buffer> allocate_pinned(std::size_t bytes) override {
    return pass([&] { return to_->allocate_pinned(bytes); });
  }
  Result<std::unique_ptr<Stream>> create_stream(StreamPriority p, StreamUse use) override {
    return pass([&] { return to_->create_stream(p, use); });
  }
  Result<std::unique_ptr<Event>> create_event(EventUse use) override {
    return pass([&] { return to_->create_event(use); });
  }
  Status record(Event& event, Stream& s) override {
    return pass([&] { return to_->record(event, s); });
  }
  Status wait(Stream& s, const Event& event) override {
    return pass([&] { return to_->wait(s, event); });
  }
  Result<bool> done(const Event& event) override {
    return pass([&] { return to_->done(event); });
  }
  Result<double> elapsed_ms(const Event& a, const Event& b) override {
    return pass([&] { return to_->elapsed_ms(a, b); });
  }
  Result<double> busy_ms(const Event& a, const Event& b) override {
    return pass([&] { return to_->busy_ms(a, b); });
  }
  Status synchronize(Stream& s, double seconds) override {
    return pass([&] { return to_->synchronize(s, seconds); });
  }
  Status forget_failure(Stream& s, double seconds) override {
    return pass([&] { return to_->forget_failure(s, seconds); });
  }
  Status copy(void* to, const void* from, std::size_t n, Stream& s) override {
    return pass([&] { return to_->copy(to, from, n, s); });
  }
  Status set_zero(void* data, std::size_t n, Stream& s) override {
    return pass([&] { return to_->set_zero(data, n, s); });
  }
  Result<std::unique_ptr<CapturedWork>> capture(Stream& s, std::function<Status()> enqueue) override {
    return pass([&] { return to_->capture(s, std::move(enqueue)); });
  }
  Status enqueue_captured(CapturedWork& work, Stream& s) override {
    return compute([&] { return to_->enqueue_captured(work, s); });
  }
  Status allow_holds() override {
    return pass([&] { return to_->allow_holds(); });
  }
  void hold(bool is_held) override { to_->hold(is_held); }
  Result<SharedBuffer> allocate_shared(std::size_t bytes) override {
    return pass([&] { return to_->allocate_shared(bytes); });
  }
  Result<Buffer> open_shared(const std::string& handle) override {
    return pass([&] { return to_->open_shared(handle); });
  }
  Result<Buffer> register_signals(void* pages, std::size_t bytes) override {
    return pass([&] { return to_->register_signals(pages, bytes); });
  }
  Status write_signal(std::uint32_t* signal, std::uint32_t number, Stream& s) override {
    return pass([&] { return to_->write_signal(signal, number, s); });
  }
  Status await_signal(const std::uint32_t* signal, std::uint32_t number, Stream& s) override {
    return pass([&] { return to_->await_signal(signal, number, s); });
  }
  Status add(VectorView sum, VectorView term, Stream& s) override {
    return compute([&] { return to_->add(sum, term, s); });
  }
  Status gemm(const Gemm& gemm, Stream& s) override {
    return compute([&] { return to_->gemm(gemm, s); });
  }
  Status quantize(const Quantization& call, Stream& s) override {
    return compute([&] { return to_->quantize(call, s); });
  }
  Status cast(VectorView to, VectorView from, Stream& s) override {
    return compute([&] { return to_->cast(to, from, s); });
  }
  Status randomize(VectorView out, const RandomSequence& sequence, Stream& s) override {
    return compute([&] { return to_->randomize(out, sequence, s); });
  }
  Status activate(MatrixView h, const float* bias, const ExtremeTerm& extreme, Stream& s) override {
    return compute([&] { return to_->activate(h, bias, extreme, s); });
  }
  Status activation_gradient(MatrixView g, MatrixView h, VectorView bias, Stream& s) override {
    return compute([&] { return to_->activation_gradient(g, h, bias, s); });
  }
  Status loss_gradient(const LossGradient& call, Stream& s) override {
    return compute([&] { return to_->loss_gradient(call, s); });
  }
  Status softmax_loss(const SoftmaxLoss& call, Stream& s) override {
    return compute([&] { return to_->softmax_loss(call, s); });
  }
  Status sgd_step(const ParameterRange& range, float* v, const math::Sgd& rule, Stream& s) override {
    return compute([&] { return to_->sgd_step(range, v, rule, s); });
  }
  Status adam_step(const ParameterRange& range, float* m, float* v, const math::Adam& rule,
                   Stream& s) override {
    return compute([&] { return to_->adam_step(range, m, v, rule, s); });
  }
  Status select_top_k(const TopKSelection& call, Stream& s) override {
    return compute([&] { return to_->select_top_k(call, s); });
  }
  Status scatter_add(VectorView sum, SparseView elements, Stream& s) override {
    return compute([&] { return to_->scatter_add(sum, elements, s); });
  }
  Status fill(WordsView words, const Pattern& pattern, Stream& s) override {
    return pass([&] { return to_->fill(words, pattern, s); });
  }
  Status reset(Mismatches* report, Stream& s) override {
    return pass([&] { return to_->reset(report, s); });
  }
  Status verify(WordsView words, const Pattern& expected, Mismatches* report, Stream& s) override {
    return pass([&] { return to_->verify(words, expected, report, s); });
  }
  Status verify_sum(VectorView sum, const void* terms, int count, Mismatches* report, Stream& s) override {
    return pass([&] { return to_->verify_sum(sum, terms, count, report, s); });
  }
  Status verify_and_fill(WordsView words, const Pattern& expected, const Pattern& next, Direction direction,
                         Mismatches* report, Stream& s) override {
    return pass([&] { return to_->verify_and_fill(words, expected, next, direction, report, s); });
  }
  Status verify_gemm(const Gemm& gemm, GemmMismatches* report, Stream& s) override {
    return compute([&] { return to_->verify_gemm(gemm, report, s); });
  }
  Status digest(WordsView words, Digest* digest, Stream& s) override {
    return pass([&] { return to_->digest(words, digest, s); });
  }
  Status sum(WordsView words, Digest* sums, Stream& s) override {
    return pass([&] { return to_->sum(words, sums, s); });
  }
  Status sine_exponential(WordsView words, int iterations, Digest* digest, Stream& s) override {
    return compute([&] { return to_->sine_exponential(words, iterations, digest, s); });
  }
  Status flip(WordsView words, const Flip& flip, Stream& s) override {
    return pass([&] { return to_->flip(words, flip, s); });
  }
  Status voxelize(const Voxelization& call, Stream& s) override {
    return compute([&] { return to_->voxelize(call, s); });
  }
  Status fuse(const StreamFusion& call, Stream& s) override {
    return compute([&] { return to_->fuse(call, s); });
  }

 protected:
  /// Called before operations that compute (no copies, patterns or digests); false skips the operation.
  virtual bool computes() const { return true; }
  /// Called before every call that can fail. If it returns an error, the call is not forwarded.
  virtual Status failure() const { return {}; }

 private:
  template <typename Call>
  auto pass(const Call& call) const -> decltype(call()) {
    EGT_TRY(failure());
    return call();
  }
  template <typename Call>
  Status compute(const Call& call) const {
    EGT_TRY(failure());
    return computes() ? call() : Status();
  }

  const std::unique_ptr<Device> to_;
};

}  // namespace egt
