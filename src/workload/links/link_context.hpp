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

/// The seed of one pattern of a trial. It differs for all `parts` (trial, measurement, repeat, from, to).
std::uint64_t link_seed(std::uint64_t run_seed, std::initializer_list<std::uint64_t> parts);

/// Received data that differ from the data sent.
struct WrongData {
  int from = -1;             ///< sending rank (this rank received); -1: the rank's own host
  std::uint64_t bytes = 0;   ///< size of the transfer
  std::uint64_t offset = 0;  ///< in bytes, of the first word that differs, from the start of the transfer
  std::uint32_t expected = 0, actual = 0;
  std::uint64_t words = 0;  ///< number of wrong words in all repeats
};

/// A measurement as one rank runs it. All calls enqueue work in the context's stream.
struct LinkMeasurement {
  int repeats = 1;
  int transfers = 1;        ///< per repeat, one after the other
  std::size_t reports = 0;  ///< verification reports in all repeats together
  /// Fills the memory, holds the device and aligns with the peers. `hold_factor` doubles after each repeat
  /// that did not lead (LinkRepeat).
  std::function<Status(int repeat, double hold_factor)> prepare;
  std::function<Status()> move;  ///< the timed part
  std::function<Status(int repeat)> verify;
};

/// State shared by all trials of a rank: send and receive memory, a stream, and the driver of every
/// measurement. Main thread only. Errors come from the device or the communicator. After a communicator
/// error, call `recover` and `renew` before anything else.
class LinkContext {
 public:
  /// Whether the run is to be interrupted. Called by the main thread.
  using Stopping = std::function<bool()>;

  /// `bytes`: size of each of the two buffers. The environment must outlive this object.
  LinkContext(const Environment& environment, std::uint64_t bytes, Stopping stopping)
      : environment_(environment),
        line_(environment.board.line("main")),
        bytes_(bytes),
        stopping_(std::move(stopping)) {}

  /// Allocates the memory, for up to `max_reports` verifications at once.
  Status prepare(std::size_t max_reports);
  /// After the communicator was aborted: waits until the streams are empty.
  Status recover(double seconds);
  /// Call after `recover`, with the new communicator. Replaces memory to which a library may still write.
  Status renew();

  /// Publishes the phase and trial that follow on the progress board.
  void begin(std::string phase, std::int64_t trial);
  /// Waits for all work in the stream, including the peers' part in it. Each call may last as long as a
  /// collective.
  Status wait();
  /// Waits for the remaining work of both streams, but not for peers.
  Status settle();
  /// Keeps memory alive that an unsettled stream may still use.
  void keep(Buffer memory) { given_up_.push_back(std::move(memory)); }
  /// Idles until the communicator is aborted, for `seconds` or less. It does not count as a wait for peers.
  Status idle(double seconds);

  /// The first `bytes` of the send or receive buffer.
  WordsView outgoing(std::uint64_t bytes) const { return words(outgoing_, bytes); }
  WordsView incoming(std::uint64_t bytes) const { return words(incoming_, bytes); }
  std::uint64_t bytes() const { return bytes_; }
  /// Handle by which another process of the node opens the receive buffer; empty: see `unshared`.
  const std::string& handle() const { return handle_; }
  const std::string& unshared() const { return unshared_; }

  Stream& stream() { return *stream_; }
  /// For concurrent work on this device.
  Stream& other_stream() { return *other_stream_; }

  /// Enqueues busy work that occupies a GPU for slightly more than `milliseconds`. Meanwhile the host
  /// enqueues the work to be measured. Without it, the measurement could include the host's enqueue time.
  Status hold(double milliseconds);
  /// Upper estimate of the host time to enqueue a communicator call (NCCL needs about half), and the longest
  /// hold unless a measurement needs more; both in milliseconds.
  static constexpr double call_ms = 0.2, longest_hold_ms = 6;
  /// Enqueues a barrier with the peer, or with all ranks.
  Status align_with(int peer);
  Status align_with_all();
  /// Runs a measurement and returns seconds per transfer for each repeat. Reports start empty; read them with
  /// `reported` afterwards. Returns `stopped` on all aligned ranks if any of them was asked to stop.
  Result<std::vector<LinkRepeat>> measure(const LinkMeasurement& measurement);

  Mismatches* report(std::size_t index) const { return reports_.as<Mismatches>() + index; }
  const Mismatches& reported(std::size_t index) const { return told_reports_.as<Mismatches>()[index]; }
  /// Summarizes the first `reports` reports of transfers of `bytes` each. Empty if all data are correct.
  std::optional<WrongData> wrong_data(int from, std::uint64_t bytes, std::size_t reports) const;

  /// Exchanges small data with the peer. Blocks until done.
  Status swap(int peer, const void* own, void* theirs, std::size_t bytes);
  Result<std::string> swap_text(int peer, const std::string& own);
  /// All-gathers small data in rank order. Blocks until done.
  Status gather(const void* own, void* all, std::size_t bytes);

  /// Bytes of verified received data, wrong ones included.
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
  Status report_stop(void* word);
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
  Aligned aligned_ = Aligned::nobody;  ///< of the last alignment
  std::string phase_;
  std::int64_t trial_ = -1;
  Buffer outgoing_, incoming_, pilot_, small_, pinned_, reports_, told_reports_;
  Buffer stops_;                  ///< pinned; stop requests: own, the peer's, and the count over all ranks
  std::vector<Buffer> given_up_;  ///< kept because a library may still write to them
  std::string handle_, unshared_;
  std::unique_ptr<Event> begin_, end_, done_;
  std::uint64_t verified_bytes_ = 0;
  Buffer busy_, busy_digest_;
  double turns_a_ms_ = 0;  ///< busy-work iterations per ms; 0: the host is the device, no holding
  std::unique_ptr<Stream> stream_, other_stream_;  ///< last member: streams finish before the memory is freed
};

}  // namespace egt
