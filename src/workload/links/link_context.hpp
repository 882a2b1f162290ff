#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "egt/workload/workload.hpp"
#include "workload/common/link_timing.hpp"

namespace egt {

/// The seed of one pattern of a trial: another for all parts (trial, measurement, repeat, from, to).
std::uint64_t link_seed(std::uint64_t run_seed, std::initializer_list<std::uint64_t> parts);

/// Data that came other than they were sent.
struct WrongData {
  int from = -1;             ///< who sent them; this rank received them; -1: the rank's own host
  std::uint64_t bytes = 0;   ///< of the transfer
  std::uint64_t offset = 0;  ///< bytes from the transfer's start, of the first word that differs
  std::uint32_t expected = 0, actual = 0;
  std::uint64_t words = 0;  ///< that differ, in all repeats
};

/// What a rank does in a measurement. All calls enqueue work in the context's stream.
struct LinkMeasurement {
  int repeats = 1;
  int transfers = 1;        ///< in a repeat, one after the other
  std::size_t reports = 0;  ///< of verifications, all repeats together
  /// Fills the memory, holds the device and aligns with the peers. `hold_factor`: doubles with each repeat
  /// that did not lead (LinkRepeat).
  std::function<Status(int repeat, double hold_factor)> prepare;
  std::function<Status()> move;  ///< what is timed
  std::function<Status(int repeat)> verify;
};

/// What the trials of a rank share: memory that is sent and received, a stream, and the driver of every
/// measurement. Main thread only. Errors are those of the device or of the communicator; after one
/// of the latter, `recover` and `renew` come before anything else.
class LinkContext {
 public:
  /// Is the run to be interrupted? Asked by the main thread.
  using Stopping = std::function<bool()>;

  /// `bytes`: of each of both memories. The environment outlives it.
  LinkContext(const Environment& environment, std::uint64_t bytes, Stopping stopping)
      : environment_(environment),
        line_(environment.board.line("main")),
        bytes_(bytes),
        stopping_(std::move(stopping)) {}

  /// Takes the memory; `most_reports` of verifications at once.
  Status prepare(std::size_t most_reports);
  /// The communicator was given up: waits until the streams are empty.
  Status recover(double seconds);
  /// Afterwards, with the new one. Where a library may still write to memory of the old one, takes other.
  Status renew();

  /// What follows is this: for the board.
  void begin(std::string phase, std::int64_t trial);
  /// Waits for all work in the stream, and so for the peers in it; each call may take as long as a
  /// collective.
  Status wait();
  /// Waits for what both streams still do, not for the peers.
  Status settle();
  /// Of memory that a stream that did not settle may still use.
  void keep(Buffer memory) { given_up_.push_back(std::move(memory)); }
  /// Does nothing until the communicator is given up, at most `seconds`; not as a wait for peers.
  Status idle(double seconds);

  /// The first `bytes` of what is sent, or received.
  WordsView outgoing(std::uint64_t bytes) const { return words(outgoing_, bytes); }
  WordsView incoming(std::uint64_t bytes) const { return words(incoming_, bytes); }
  std::uint64_t bytes() const { return bytes_; }
  /// By which another process of the host opens what is received; empty: it cannot, and `unshared` says why.
  const std::string& handle() const { return handle_; }
  const std::string& unshared() const { return unshared_; }

  Stream& stream() { return *stream_; }
  /// For what goes on at the same time on this device.
  Stream& other_stream() { return *other_stream_; }

  /// In the stream: on a GPU, keeps it busy for about `milliseconds` (and a little more), while the host puts
  /// enqueued what is to be measured. That may take the host longer than the device: else its time would be
  /// measured.
  Status hold(double milliseconds);
  /// What enqueuing a call of the communicator may take the host (of NCCL about half of it), and the
  /// longest hold, unless more hangs on it.
  static constexpr double call_ms = 0.2, longest_hold_ms = 6;
  /// In the stream: goes on when the peer, or all ranks, have come as far.
  Status align_with(int peer);
  Status align_with_all();
  /// Makes a measurement: seconds of a transfer, by repeat. Reports begin empty, and `told` gives them
  /// afterwards. `stopped`, on all ranks that are aligned, where one of them was asked to.
  Result<std::vector<LinkRepeat>> measure(const LinkMeasurement& measurement);

  Mismatches* report(std::size_t index) const { return reports_.as<Mismatches>() + index; }
  const Mismatches& told(std::size_t index) const { return told_reports_.as<Mismatches>()[index]; }
  /// What the first `reports` of them say of transfers of `bytes` each; none: all is right.
  std::optional<WrongData> wrong_data(int from, std::uint64_t bytes, std::size_t reports) const;

  /// Small data for the peer's: waits.
  Status swap(int peer, const void* own, void* theirs, std::size_t bytes);
  Result<std::string> swap_text(int peer, const std::string& own);
  /// Data of every rank for every rank, in rank order: waits.
  Status gather(const void* own, void* all, std::size_t bytes);

  /// Of received data that were verified, and of those that were wrong.
  void count_verified(std::uint64_t bytes) { verified_bytes_ += bytes; }
  std::uint64_t verified_bytes() const { return verified_bytes_; }

  const Environment& environment() const { return environment_; }
  Device& device() const { return environment_.device; }
  Communicator& communicator() const { return environment_.communicator; }

 private:
  static WordsView words(const Buffer& buffer, std::uint64_t bytes) {
    return {buffer.as<std::uint32_t>(), bytes / sizeof(std::uint32_t)};
  }
  enum class Aligned { nobody, pair, all };
  Status allocate();
  Status calibrate_hold();
  Status tell_stop(void* word);
  bool is_stopped() const;
  Result<bool> leads_device();
  Result<double> clock_seconds() const;
  template <typename Send>
  Status trade(const void* own, std::size_t bytes, void* theirs, std::size_t their_bytes, const Send& send);
  float* told_stop(std::size_t index) const { return stops_.as<float>() + index; }

  const Environment& environment_;
  ProgressBoard::Line& line_;
  const std::uint64_t bytes_;
  const Stopping stopping_;
  Aligned aligned_ = Aligned::nobody;  ///< last
  std::string phase_;
  std::int64_t trial_ = -1;
  Buffer outgoing_, incoming_, pilot_, small_, pinned_, reports_, told_reports_;
  Buffer stops_;                  ///< pinned: was this rank asked to stop, its peer, and how many of all
  std::vector<Buffer> given_up_;  ///< a library may still write to them
  std::string handle_, unshared_;
  std::unique_ptr<Event> begin_, end_, done_;
  std::uint64_t verified_bytes_ = 0;
  Buffer busy_, busy_digest_;
  double turns_a_ms_ = 0;  ///< of busy work; 0: the host is the device, and nothing is held
  std::unique_ptr<Stream> stream_, other_stream_;  ///< last: they wait for their work before the memory goes
};

}  // namespace egt
