#include "workload/links/link_context.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "egt/core/wait.hpp"
#include "workload/common/findings.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {
namespace {

constexpr std::size_t text_bytes = 1024;  ///< bytes; a shared-memory handle needs a few hundred
constexpr std::size_t pilot_bytes = 64;   ///< sent, received, and reduced for alignment
enum Stop : std::size_t { own_stop, peers_stop, all_stops, stop_words };
constexpr std::uint64_t busy_words = 1024;
constexpr int calibration_turns = 4000;
constexpr double min_hold_ms = 0.3;

}  // namespace

std::uint64_t link_seed(std::uint64_t run_seed, std::initializer_list<std::uint64_t> parts) {
  std::uint64_t seed = mix64(run_seed ^ 0x6C696E6B73ull);  // differs from the patterns of all other workloads
  for (const std::uint64_t part : parts) seed = mix64((seed ^ part) + 0x9E3779B97F4A7C15ull);
  return seed;
}

Status LinkContext::prepare(std::size_t max_reports) {
  Device& device = environment_.device;
  EGT_TRY(allocate());
  const std::size_t small = std::max(text_bytes, max_reports * sizeof(Mismatches));
  const std::size_t all = small * static_cast<std::size_t>(environment_.place.size);
  EGT_TRY_ASSIGN(pinned_, device.allocate_pinned(small + all));
  EGT_TRY_ASSIGN(reports_, device.allocate(max_reports * sizeof(Mismatches)));
  EGT_TRY_ASSIGN(told_reports_, device.allocate_pinned(max_reports * sizeof(Mismatches)));
  EGT_TRY_ASSIGN(small_, device.allocate(small + all));
  EGT_TRY_ASSIGN(stops_, device.allocate_pinned(stop_words * sizeof(float)));
  EGT_TRY_ASSIGN(stream_, device.create_stream(StreamPriority::normal, StreamUse::without_products));
  EGT_TRY_ASSIGN(other_stream_, device.create_stream(StreamPriority::normal, StreamUse::without_products));
  for (auto* event : {&begin_, &end_}) {
    EGT_TRY_ASSIGN(*event, device.create_event(EventUse::timing));
  }
  EGT_TRY_ASSIGN(done_, device.create_event(EventUse::order));
  return calibrate_hold();
}

Status LinkContext::calibrate_hold() {
  Device& device = environment_.device;
  if (device.info().backend == "host") return {};
  constexpr double timeout_s = 30;
  EGT_TRY_ASSIGN(busy_, device.allocate(busy_words * sizeof(std::uint32_t)));
  EGT_TRY_ASSIGN(busy_digest_, device.allocate(sizeof(Digest)));
  const WordsView words{busy_.as<std::uint32_t>(), busy_words};
  EGT_TRY(device.set_zero(words.data, words.bytes(), *stream_));
  for (int warm = 0; warm < 2; ++warm) {  // the first run loads the kernel
    EGT_TRY(device.record(*begin_, *stream_));
    EGT_TRY(device.sine_exponential(words, calibration_turns, busy_digest_.as<Digest>(), *stream_));
    EGT_TRY(device.record(*end_, *stream_));
    EGT_TRY(device.synchronize(*stream_, timeout_s));
  }
  EGT_TRY_ASSIGN(const double seconds, clock_seconds());
  if (seconds > 0) turns_a_ms_ = calibration_turns / (seconds * 1e3);
  return {};
}

Status LinkContext::hold(double milliseconds) {
  if (turns_a_ms_ <= 0) return {};
  const double ms = min_hold_ms + milliseconds;
  return environment_.device.sine_exponential({busy_.as<std::uint32_t>(), busy_words},
                                              static_cast<int>(turns_a_ms_ * ms) + 1,
                                              busy_digest_.as<Digest>(), *stream_);
}

/// Allocates the buffers that receive data of other ranks.
Status LinkContext::allocate() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(outgoing_, device.allocate(bytes_));
  EGT_TRY_ASSIGN(pilot_, device.allocate(stop_words * pilot_bytes));
  auto shared = device.allocate_shared(bytes_);
  if (shared.ok()) {
    incoming_ = std::move(shared.value().buffer);
    handle_ = std::move(shared.value().handle);
    return {};
  }
  if (shared.status().code() == StatusCode::out_of_memory) return shared.status();
  handle_.clear();
  unshared_ = shared.status().what();
  EGT_TRY_ASSIGN(incoming_, device.allocate(bytes_));
  return {};
}

Status LinkContext::recover(double seconds) {
  EGT_TRY(environment_.device.forget_failure(*stream_, seconds));
  return environment_.device.forget_failure(*other_stream_, seconds);
}

Status LinkContext::settle() {
  constexpr double deadline_s = 10;
  for (Stream* stream : {stream_.get(), other_stream_.get()})
    EGT_TRY(environment_.device.synchronize(*stream, deadline_s));
  return {};
}

/// On the host, replaces and keeps buffers to which MPI may still write. NCCL's work ended with the streams.
Status LinkContext::renew() {
  if (environment_.device.info().backend != "host") return {};
  for (Buffer* buffer : {&outgoing_, &incoming_, &pilot_}) given_up_.push_back(std::move(*buffer));
  const std::size_t small = small_.bytes();
  given_up_.push_back(std::move(small_));
  EGT_TRY_ASSIGN(small_, environment_.device.allocate(small));
  return allocate();
}

void LinkContext::begin(std::string phase, std::int64_t trial) {
  phase_ = std::move(phase);
  trial_ = trial;
  aligned_ = Aligned::nobody;
  line_.begin(phase_, trial_);
}

Status LinkContext::wait() {
  if (aligned_ != Aligned::nobody) {
    const std::size_t place = aligned_ == Aligned::pair ? peers_stop : all_stops;
    EGT_TRY(environment_.device.copy(told_stop(place), pilot_.as<std::byte>() + place * pilot_bytes,
                                     sizeof(float), *stream_));
  }
  EGT_TRY(environment_.device.record(*done_, *stream_));
  line_.begin(phase_, trial_);
  line_.wait_for_peers(phase_);
  EGT_TRY(wait_with_peers(environment_.device, environment_.communicator, *done_,
                          environment_.peer_timeout_seconds, phase_.c_str()));
  line_.begin(phase_, trial_);
  return {};
}

/// After `wait`: whether any rank of the last alignment had been asked to stop. All aligned ranks get the
/// same answer, so they end a trial together. Without an alignment, the answer is this rank's own.
bool LinkContext::is_stopped() const {
  if (aligned_ == Aligned::nobody) return stopping_();
  if (aligned_ == Aligned::all) return *told_stop(all_stops) > 0;
  return *told_stop(own_stop) > 0 || *told_stop(peers_stop) > 0;
}

Status LinkContext::idle(double seconds) {
  line_.begin(phase_, trial_);
  const Status waited = wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(environment_.communicator.check());
        return false;
      },
      {.seconds = seconds, .what = phase_.c_str()});
  return waited.code() == StatusCode::timeout ? Status() : waited;
}

/// The alignment message also carries the stop requests of the aligned ranks. The host word is free again: a
/// `wait` came between, so the stream has completed the previous copy.
Status LinkContext::report_stop(void* word) {
  *told_stop(own_stop) = stopping_() ? 1 : 0;
  return environment_.device.copy(word, told_stop(own_stop), sizeof(float), *stream_);
}

Status LinkContext::align_with(int peer) {
  const Message send{pilot_.data(), pilot_bytes, peer};
  const Message receive{pilot_.as<std::byte>() + peers_stop * pilot_bytes, pilot_bytes, peer};
  EGT_TRY(report_stop(send.data));
  aligned_ = Aligned::pair;
  return environment_.communicator.exchange({&send, 1}, {&receive, 1}, *stream_);
}

Status LinkContext::align_with_all() {
  std::byte* const sum = pilot_.as<std::byte>() + all_stops * pilot_bytes;
  EGT_TRY(report_stop(sum));
  aligned_ = Aligned::all;
  return environment_.communicator.all_reduce(sum, 1, ElementType::f32, *stream_);
}

Result<std::vector<LinkRepeat>> LinkContext::measure(const LinkMeasurement& m) {
  Device& device = environment_.device;
  std::vector<LinkRepeat> repeats;
  double hold_factor = 1;
  for (std::size_t i = 0; i < m.reports; ++i) EGT_TRY(device.reset(report(i), *stream_));
  for (int repeat = 0; repeat < m.repeats; ++repeat) {
    EGT_TRY(m.prepare(repeat, hold_factor));
    EGT_TRY(device.record(*begin_, *stream_));
    EGT_TRY(m.move());
    EGT_TRY(device.record(*end_, *stream_));
    EGT_TRY_ASSIGN(const bool led, leads_device());
    if (!led) hold_factor *= 2;
    EGT_TRY(m.verify(repeat));
    EGT_TRY(wait());
    EGT_TRY_ASSIGN(const double seconds, clock_seconds());
    repeats.push_back({.seconds = seconds / m.transfers, .led = led});
    if (is_stopped()) return Status(StatusCode::stopped, "the run is to be interrupted");
  }
  if (m.reports == 0) return repeats;
  EGT_TRY(device.copy(told_reports_.data(), reports_.data(), m.reports * sizeof(Mismatches), *stream_));
  EGT_TRY(wait());
  return repeats;
}

std::optional<WrongData> LinkContext::wrong_data(int from, std::uint64_t bytes, std::size_t reports) const {
  std::optional<WrongData> wrong;
  for (std::size_t i = 0; i < reports; ++i) {
    const Mismatches& found = reported(i);
    if (found.count == 0) continue;
    if (!wrong) {
      const Mismatches::Sample sample = lowest_sample(found);
      wrong = {.from = from,
               .bytes = bytes,
               .offset = sample.index * sizeof(std::uint32_t) % bytes,
               .expected = sample.expected,
               .actual = sample.actual,
               .words = 0};
    }
    wrong->words += found.count;
  }
  return wrong;
}

/// Called after the end event is enqueued and before any wait. True if the device has not yet reached the
/// begin event, and always true if the host is the device.
Result<bool> LinkContext::leads_device() {
  if (turns_a_ms_ <= 0) return true;
  EGT_TRY_ASSIGN(const bool began, environment_.device.done(*begin_));
  return !began;
}

/// Valid after `wait`.
Result<double> LinkContext::clock_seconds() const {
  EGT_TRY_ASSIGN(const double ms, environment_.device.elapsed_ms(*begin_, *end_));
  return ms * 1e-3;
}

/// Copies small data to and from the device around what `send` enqueues. Blocks until done.
template <typename Send>
Status LinkContext::trade(const void* own, std::size_t bytes, void* theirs, std::size_t their_bytes,
                          const Send& send) {
  if (bytes + their_bytes > small_.bytes())
    return {StatusCode::internal, "more of the other ranks than there is memory for"};
  auto *const pinned = pinned_.as<std::byte>(), *const small = small_.as<std::byte>();
  std::memcpy(pinned, own, bytes);
  EGT_TRY(environment_.device.copy(small, pinned, bytes, *stream_));
  EGT_TRY(send(small, small + bytes));
  EGT_TRY(environment_.device.copy(pinned + bytes, small + bytes, their_bytes, *stream_));
  EGT_TRY(wait());
  std::memcpy(theirs, pinned + bytes, their_bytes);
  return {};
}

Status LinkContext::swap(int peer, const void* own, void* theirs, std::size_t bytes) {
  return trade(own, bytes, theirs, bytes, [&](std::byte* out, std::byte* in) {
    const Message send{out, bytes, peer}, receive{in, bytes, peer};
    return environment_.communicator.exchange({&send, 1}, {&receive, 1}, *stream_);
  });
}

Result<std::string> LinkContext::swap_text(int peer, const std::string& own) {
  std::array<char, text_bytes / 2> sent{}, received{};
  own.copy(sent.data(), sent.size() - 1);
  EGT_TRY(swap(peer, sent.data(), received.data(), sent.size()));
  received.back() = '\0';
  return std::string(received.data());
}

Status LinkContext::gather(const void* own, void* all, std::size_t bytes) {
  const std::size_t all_bytes = bytes * static_cast<std::size_t>(environment_.place.size);
  return trade(own, bytes, all, all_bytes, [&](std::byte* out, std::byte* in) {
    return environment_.communicator.all_gather(out, in, bytes, *stream_);
  });
}

}  // namespace egt
