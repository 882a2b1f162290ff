#include "session/recovery/watchdog.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "egt/core/clock.hpp"
#include "egt/core/process_limits.hpp"

namespace egt {
namespace {

constexpr double period_s = 0.05, longest_period_s = 0.5;
constexpr double ranks_at_period = 16;  ///< above this number of ranks, each one sends less often
constexpr double slept_s = 1;           ///< a longer iteration means that this process was stopped
constexpr double flush_s = 0.3;         ///< time for the network to accept the last messages
constexpr double pump_s = 0.02;
constexpr double stop_excuse_s = 0.2;  ///< after a stop signal: mpirun may have ended a missing rank
constexpr double late_stop_s = 0.5;    ///< mpirun kills ranks a second after a stop signal
constexpr std::chrono::seconds drain_deadline{1};

double period_of(std::size_t ranks) {
  return std::clamp(period_s * static_cast<double>(ranks) / ranks_at_period, period_s, longest_period_s);
}

bool names(const std::vector<Loss>& losses, int rank) {
  return std::any_of(losses.begin(), losses.end(), [&](const Loss& loss) { return loss.rank == rank; });
}

}  // namespace

Watchdog::Watchdog(Heartbeat& heartbeat, const ProgressBoard& board, std::vector<WatchedRank> ranks,
                   const WatchOptions& options, WatchdogHooks hooks, SecondsClock clock)
    : heartbeat_(heartbeat),
      board_(board),
      options_(options),
      hooks_(std::move(hooks)),
      clock_(std::move(clock)),
      texts_(ranks.size()) {
  table_.self = heartbeat.rank();
  for (WatchedRank& who : ranks) {
    table_.ranks.emplace_back();
    table_.ranks.back().who = std::move(who);
  }
}

Watchdog::~Watchdog() {
  leave();
}

// ---- Calls from other threads.

Status Watchdog::start() {
  turned_at_ = table_.watched_from = clock_();
  for (RankView& view : table_.ranks) view.heard_at = turned_at_;
  EGT_TRY_ASSIGN(thread_, start_thread<std::jthread>("the watchdog", [this] { run(); }));
  return {};
}

void Watchdog::change(const std::function<void(WatchNews&)>& change) {
  {
    const std::lock_guard lock(mutex_);
    change(mine_);
    changed_ = true;
  }
  heartbeat_.wake();
}

void Watchdog::fail(const Status& why, const Json& fault) {
  change([&](WatchNews& news) {
    if (news.failed) return;
    news.failed = why.what();
    news.fault = fault;
    news.by_restart = why.code() == StatusCode::aborted && fault.is_null() &&
                      news.order.number > std::max(news.arrived, news.resumed);
  });
}

void Watchdog::await_end(double seconds) {
  std::unique_lock lock(mutex_);
  progressed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return ended_; });
}

std::optional<RestartOrder> Watchdog::restart_ordered() const {
  const std::lock_guard lock(mutex_);
  return mine_.order.number > mine_.resumed ? std::optional(mine_.order) : std::nullopt;
}

void Watchdog::arrived(int number) {
  change([&](WatchNews& news) { news.arrived = std::max(news.arrived, number); });
}

bool Watchdog::all_arrived(int number) const {
  const std::lock_guard lock(mutex_);
  return all_arrived_ >= number;
}

void Watchdog::resumed(int number) {
  change([&](WatchNews& news) { news.resumed = std::max(news.resumed, number); });
}

void Watchdog::end_steps() {
  change([](WatchNews& news) { news.steps_ended = true; });
}

void Watchdog::leave() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(leaving_, true)) return;
  }
  heartbeat_.wake();
  if (thread_.joinable()) thread_.join();
  heartbeat_.goodbye();
}

bool Watchdog::given_up() {
  std::unique_lock lock(mutex_);
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id() && !leaving_ && !ending_) {
    const std::uint64_t turn = ++drain_wanted_;
    heartbeat_.wake();
    progressed_.wait_for(lock, drain_deadline, [&] { return drain_done_ >= turn || ending_; });
  }
  return lost_;
}

// ---- The watchdog's thread.

void Watchdog::run() {
  const auto leaving = [this] {
    const std::lock_guard lock(mutex_);
    return leaving_;
  };
  while (!leaving()) turn(period_of(table_.ranks.size()));
}

void Watchdog::turn(double wait_seconds) {
  std::uint64_t wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    wanted = drain_wanted_;
    if (wanted > drain_done_) wait_seconds = 0;
  }
  const double now = exchange(wait_seconds);
  if (!ending_) follow(now);
  if (!ending_) decide(now);
  if (!ending_) report_late_stop(now);
  const std::lock_guard lock(mutex_);
  drain_done_ = wanted;
  progressed_.notify_all();
}

/// Sends and receives news. Returns the time at which it was read. With a later time, a scheduling delay of
/// this thread would count as silence.
double Watchdog::exchange(double wait_seconds) {
  const double period = period_of(table_.ranks.size());
  const double before = clock_();
  bool changed = false;
  {
    const std::lock_guard lock(mutex_);
    changed = changed_;
  }
  if (changed || before - sent_at_ >= period) send_news(before);
  heartbeat_.poll(std::clamp(sent_at_ + period - before, 0.0, wait_seconds));
  const double now = clock_();
  // What this process knows of its peers is outdated after it was stopped.
  if (now - turned_at_ > slept_s) table_.watched_from = now;
  turned_at_ = now;
  take_news(now);
  return now;
}

WatchNews Watchdog::own_news() const {
  const std::lock_guard lock(mutex_);
  WatchNews news = mine_;
  news.activities = board_.read();
  return news;
}

void Watchdog::send_news(double now) {
  {
    const std::lock_guard lock(mutex_);
    changed_ = false;
  }
  heartbeat_.send(to_text(own_news()));
  sent_at_ = now;
}

void Watchdog::take_news(double now) {
  RankView& self = table_.ranks[static_cast<std::size_t>(table_.self)];
  self.news = own_news();
  self.heard_at = now;
  if (self.news.failed && !self.failed_at) self.failed_at = now;
  const std::vector<Peer>& peers = heartbeat_.peers();
  const double asked = clock_();  // after the call: news may seem newer than it is, never older
  for (const Peer& peer : peers) take_peer(peer, asked);
}

void Watchdog::take_peer(const Peer& peer, double now) {
  const auto index = static_cast<std::size_t>(peer.rank);
  RankView& view = table_.ranks[index];
  if (texts_[index] != peer.texts) {
    texts_[index] = peer.texts;
    if (auto news = parse_watch_news(peer.text)) {
      view.news = std::move(*news);
      view.heard_at = now - peer.seconds;
    }
  }
  if (view.news.failed && !view.failed_at) view.failed_at = now;
  if (peer.left) view.left = true;
  if (!peer.gone || view.gone_at) return;
  view.gone_at = now;
  view.gone_in_stop = stopping_for() > stop_excuse_s;
}

double Watchdog::stopping_for() const {
  return hooks_.stopping_for ? hooks_.stopping_for() : 0;
}

void Watchdog::report_late_stop(double now) {
  if (late_stop_told_ || stopping_for() < late_stop_s) return;
  late_stop_told_ = true;
  if (hooks_.on_late_stop) hooks_.on_late_stop(late_stops(table_, now));
}

/// Applies the decisions of other ranks, and tracks the restart.
void Watchdog::follow(double now) {
  for (const RankView& view : table_.ranks)
    if (!view.news.given_up.empty()) return give_up(view.news.given_up);
  for (std::size_t i = 0; i < table_.ranks.size(); ++i)
    if (table_.ranks[i].news.order.number > table_.order.number) adopt(table_.ranks[i].news.order, now);
  if (restart_open(table_) && !table_.all_arrived_at && egt::all_arrived(table_)) {
    table_.all_arrived_at = now;
    const std::lock_guard lock(mutex_);
    all_arrived_ = table_.order.number;
  }
  if (restarting_ && !restart_open(table_)) {
    restarting_ = false;
    table_.watched_from = now;
  }
}

void Watchdog::adopt(const RestartOrder& order, double now) {
  table_.as_ordered = main_threads(table_, options_, now);
  table_.order = order;
  table_.ordered_at = now;
  table_.all_arrived_at.reset();
  restarting_ = true;
  {
    const std::lock_guard lock(mutex_);
    mine_.order = order;
  }
  send_news(now);
  if (hooks_.on_restart) hooks_.on_restart(order);
}

void Watchdog::decide(double now) {
  if (leader(table_, options_, now) != table_.self) return;
  const WatchDecision decision = judge(table_, options_, now);
  if (decision.act == WatchDecision::Act::give_up) give_up(decision.losses);
  if (decision.act == WatchDecision::Act::restart) adopt({table_.order.number + 1, decision.losses}, now);
}

void Watchdog::give_up(const std::vector<Loss>& losses) {
  const std::vector<Loss> lost = losses;  // copied, since the news that hold them change below
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    ending_ = true;
    lost_ = names(lost, table_.self);
    mine_.given_up = lost;
    progressed_.notify_all();
  }
  send_news(clock_());
  heartbeat_.flush(flush_s);
  if (hooks_.on_give_up) hooks_.on_give_up(lost);
  const std::lock_guard lock(mutex_);
  ended_ = true;
  progressed_.notify_all();
}

// ---- For on_give_up.

bool Watchdog::is_deputy() const {
  const std::lock_guard lock(mutex_);
  return deputy(mine_.given_up, static_cast<int>(table_.ranks.size())) == table_.self;
}

std::vector<Peer> Watchdog::peers() {
  exchange(0);
  return heartbeat_.peers();
}

void Watchdog::report_all(const std::string& word) {
  {
    const std::lock_guard lock(mutex_);
    mine_.words.push_back(word);
  }
  send_news(clock_());
  heartbeat_.flush(flush_s);
}

bool Watchdog::heard(const std::string& word) {
  exchange(0);
  return std::any_of(table_.ranks.begin(), table_.ranks.end(), [&](const RankView& view) {
    return std::find(view.news.words.begin(), view.news.words.end(), word) != view.news.words.end();
  });
}

bool Watchdog::wait_until(const std::function<bool()>& done, double seconds) {
  const double start = clock_();
  while (!done()) {
    if (clock_() - start >= seconds) return false;
    exchange(pump_s);
  }
  return true;
}

}  // namespace egt
