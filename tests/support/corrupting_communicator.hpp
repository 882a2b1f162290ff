#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device/host/host_stream.hpp"
#include "egt/ranks/communicator.hpp"

namespace egt::test {

/// Forwards to the real communicator. On the rank that is hit, it changes one word of sent or received data.
/// For streams of the host device.
class CorruptingCommunicator : public Communicator {
 public:
  enum class Collective { all_reduce, broadcast, reduce_scatter, all_gather, exchange };
  struct Hit {
    int rank = -1;  ///< rank in the wrapped communicator, also for one split from it
    Collective collective = Collective::all_reduce;
    bool sent = false;               ///< changes this rank's input, otherwise its output
    std::size_t bytes_at_least = 0;  ///< min size of the buffer or message; smaller ones are ignored
    std::size_t word = 0;
    std::function<std::uint32_t(std::uint32_t)> change = {};
    int first_call = 0;  ///< index among the matching calls, from 0
    int last_call = std::numeric_limits<int>::max();
  };

  CorruptingCommunicator(Communicator& real, Hit hit)
      : CorruptingCommunicator(real, std::vector<Hit>{std::move(hit)}) {}
  CorruptingCommunicator(Communicator& real, std::vector<Hit> hits)
      : real_(real), own_rank_(real.rank()), hits_(std::move(hits)), calls_(hits_.size(), 0) {}

  /// Called before and after each all-gather; an error becomes the all-gather's error. Main thread only.
  void set_all_gather_failure(std::function<Status(bool is_enqueued)> failure) {
    fails_ = std::move(failure);
  }

  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override {
    const std::size_t bytes = count * size_of(type);
    corrupt(Collective::all_reduce, true, data, bytes, stream);
    EGT_TRY(real_.all_reduce(data, count, type, stream));
    corrupt(Collective::all_reduce, false, data, bytes, stream);
    return {};
  }
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override {
    corrupt(Collective::broadcast, true, data, bytes, stream);
    EGT_TRY(real_.broadcast(data, bytes, root, stream));
    corrupt(Collective::broadcast, false, data, bytes, stream);
    return {};
  }
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override {
    const std::size_t bytes = recv_count * size_of(type);
    corrupt(Collective::reduce_scatter, true, send, bytes * static_cast<std::size_t>(size()), stream);
    EGT_TRY(real_.reduce_scatter(send, recv, recv_count, type, stream));
    corrupt(Collective::reduce_scatter, false, recv, bytes, stream);
    return {};
  }
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override {
    if (fails_) EGT_TRY(fails_(false));
    corrupt(Collective::all_gather, true, send, bytes, stream);
    EGT_TRY(real_.all_gather(send, recv, bytes, stream));
    corrupt(Collective::all_gather, false, recv, bytes * static_cast<std::size_t>(size()), stream);
    return fails_ ? fails_(true) : Status();
  }
  Status exchange(std::span<const Message> sends, std::span<const Message> receives,
                  Stream& stream) override {
    for (const Message& message : sends)
      corrupt(Collective::exchange, true, message.data, message.bytes, stream);
    EGT_TRY(real_.exchange(sends, receives, stream));
    for (const Message& message : receives)
      corrupt(Collective::exchange, false, message.data, message.bytes, stream);
    return {};
  }
  Result<std::unique_ptr<Communicator>> split(int group) override {
    EGT_TRY_ASSIGN(auto child, real_.split(group));
    if (!child) return std::unique_ptr<Communicator>();
    return std::unique_ptr<Communicator>(new CorruptingCommunicator(std::move(child), own_rank_, hits_));
  }
  Status check() override { return real_.check(); }
  void interrupt() override { real_.interrupt(); }
  void abort() override { real_.abort(); }

 private:
  CorruptingCommunicator(std::unique_ptr<Communicator> child, int own_rank, std::vector<Hit> hits)
      : child_(std::move(child)),
        real_(*child_),
        own_rank_(own_rank),
        hits_(std::move(hits)),
        calls_(hits_.size(), 0) {}

  void corrupt(Collective collective, bool sent, const void* data, std::size_t bytes, Stream& stream) {
    for (std::size_t i = 0; i < hits_.size(); ++i) {
      const Hit& hit = hits_[i];
      if (own_rank_ != hit.rank || collective != hit.collective || sent != hit.sent ||
          bytes < std::max<std::size_t>(hit.bytes_at_least, (hit.word + 1) * sizeof(std::uint32_t)))
        continue;
      const int call = calls_[i]++;
      if (call < hit.first_call || call > hit.last_call) continue;
      // Const only for the communicator; the caller owns and has written the sent data.
      auto* word = const_cast<std::uint32_t*>(static_cast<const std::uint32_t*>(data)) + hit.word;
      as_host_stream(stream).enqueue([word, change = hit.change] {
        *word = change(*word);
        return Status();
      });
    }
  }

  const std::unique_ptr<Communicator> child_;  ///< null if the real one is not owned
  Communicator& real_;
  const int own_rank_;
  const std::vector<Hit> hits_;
  std::vector<int> calls_;
  std::function<Status(bool)> fails_;
};

}  // namespace egt::test
