#include "report/queued_sink.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "egt/core/clock.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/record_queue.hpp"
#include "egt/core/units.hpp"

namespace egt {
namespace {

constexpr std::chrono::milliseconds flush_period{250};
constexpr std::chrono::seconds end_patience{1};

Record left_out(std::size_t records) {
  return {
      .kind = RecordKind::notice,
      .time = unix_now(),
      .body = {{"level", "warning"},
               {"text", fmt::format("{} dropped here (progress, epochs, notices): this output was blocked; "
                                    "the journals have them",
                                    counted(records, "record"))}}};
}

}  // namespace

/// State shared by a queued sink and its thread.
struct QueuedSink::State {
  explicit State(std::shared_ptr<Sink> a_sink) : sink(std::move(a_sink)) {}

  using Item = std::variant<Record, std::function<void()>>;

  void put(Item item);
  void report_dropped();
  void serve();
  Status hand_over(Item item);

  const std::shared_ptr<Sink> sink;
  mutable std::mutex mutex;  ///< protects the members below
  std::condition_variable changed;
  std::deque<Item> items;
  std::size_t dropped = 0;  ///< since the last enqueued item
  bool closed = false, ended = false;
  bool settled = true;  ///< everything enqueued was written and flushed
  Status failure;       ///< the last one
};

/// The caller holds the lock.
void QueuedSink::State::put(Item item) {
  if (closed) return;
  const auto* record = std::get_if<Record>(&item);
  if (record && may_be_dropped(record->kind) && items.size() >= capacity) {
    ++dropped;
    return;
  }
  if (items.size() < capacity) report_dropped();
  items.push_back(std::move(item));
  settled = false;
  changed.notify_all();
}

/// Replaces the dropped records with a message. The caller holds the lock.
void QueuedSink::State::report_dropped() {
  if (dropped > 0) items.push_back(left_out(std::exchange(dropped, 0)));
}

Status QueuedSink::State::hand_over(Item item) {
  if (const auto* record = std::get_if<Record>(&item)) return sink->write(*record);
  std::get<std::function<void()>>(item)();
  return {};
}

/// Main loop of the thread.
void QueuedSink::State::serve() {
  std::unique_lock lock(mutex);
  const auto unlocked = [&](auto&& work) {
    lock.unlock();
    Status status = work();
    lock.lock();
    if (!status.ok()) failure = std::move(status);
  };
  for (;;) {
    changed.wait_for(lock, flush_period, [this] { return closed || !items.empty(); });
    while (!items.empty()) {
      Item item = std::move(items.front());
      items.pop_front();
      unlocked([&] { return hand_over(std::move(item)); });
    }
    unlocked([this] { return sink->flush(); });
    settled = items.empty();
    if (closed && items.empty()) break;
  }
  ended = true;
  changed.notify_all();
}

Result<std::unique_ptr<QueuedSink>> QueuedSink::open(std::string name, std::shared_ptr<Sink> sink) {
  auto state = std::make_shared<State>(std::move(sink));
  EGT_TRY_ASSIGN(std::thread thread, start_thread(name, [state] { state->serve(); }));
  return std::unique_ptr<QueuedSink>(new QueuedSink(std::move(state), std::move(thread)));
}

QueuedSink::QueuedSink(std::shared_ptr<State> state, std::thread thread)
    : state_(std::move(state)), thread_(std::move(thread)) {}

QueuedSink::~QueuedSink() {
  close();
  std::unique_lock lock(state_->mutex);
  const bool ended = state_->changed.wait_for(lock, end_patience, [this] { return state_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

Status QueuedSink::write(const Record& record) {
  const std::lock_guard lock(state_->mutex);
  state_->put(record);
  return state_->failure;
}

Status QueuedSink::flush() {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

void QueuedSink::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->put(std::move(task));
}

void QueuedSink::close() {
  const std::lock_guard lock(state_->mutex);
  if (!state_->closed) state_->report_dropped();
  state_->closed = true;
  state_->changed.notify_all();
}

bool QueuedSink::settled() const {
  const std::lock_guard lock(state_->mutex);
  return state_->settled;
}

bool QueuedSink::ended() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ended;
}

Result<std::unique_ptr<QueuedConsole>> QueuedConsole::open(const ConsoleStyle& style) {
  auto console = open_console(style);
  EGT_TRY_ASSIGN(auto sink, QueuedSink::open("the console", console));
  return std::unique_ptr<QueuedConsole>(new QueuedConsole(std::move(console), std::move(sink)));
}

void QueuedConsole::show(std::function<void(Console&)> what) {
  sink_->post([console = console_, what = std::move(what)] { what(*console); });
}

}  // namespace egt
