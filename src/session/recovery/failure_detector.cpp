#include "session/recovery/failure_detector.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "egt/core/json_access.hpp"

namespace egt {
namespace {

constexpr const char *main_line = "main", *journal_line = "journal";
constexpr double long_write_seconds = 1;  ///< a stopped rank may have been in a shorter journal write
constexpr double background_patience_seconds = 120, background_timeouts = 4;

// ---- Serialization of WatchNews.

Json activity_to_json(const Activity& activity) {
  return {{"line", activity.line},
          {"phase", activity.phase},
          {"step", activity.step},
          {"waits", activity.waits_for_peers},
          {"patience", activity.patience_seconds},
          {"seconds", activity.seconds},
          {"beats", activity.beats},
          {"file", activity.file},
          {"state", activity.task_state}};
}

Activity activity_from(const Json& json) {
  return {.line = text_at(json, "line"),
          .phase = text_at(json, "phase"),
          .step = value_at<std::int64_t>(json, "step").value_or(-1),
          .waits_for_peers = value_at<bool>(json, "waits").value_or(false),
          .patience_seconds = value_at<double>(json, "patience").value_or(0),
          .seconds = value_at<double>(json, "seconds").value_or(0),
          .beats = value_at<bool>(json, "beats").value_or(false),
          .file = text_at(json, "file"),
          .task_state = text_at(json, "state")};
}

Loss::How how_from(const std::string& text) {
  for (const Loss::How how : {Loss::How::silent, Loss::How::vanished, Loss::How::failed})
    if (text == to_string(how)) return how;
  return Loss::How::stuck;
}

Loss loss_from(const Json& json) {
  return {.how = how_from(text_at(json, "how")),
          .rank = value_at<int>(json, "rank").value_or(-1),
          .hostname = text_at(json, "hostname"),
          .device_uuid = text_at(json, "device_uuid"),
          .phase = text_at(json, "phase"),
          .step = value_at<std::int64_t>(json, "step").value_or(-1),
          .seconds = value_at<double>(json, "seconds").value_or(0),
          .text = text_at(json, "text")};
}

template <typename T, typename Convert>
Json list_to_json(const std::vector<T>& items, const Convert& convert) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(convert(item));
  return list;
}

template <typename T, typename Convert>
std::vector<T> list_from(const Json& list, const Convert& convert) {
  std::vector<T> items;
  for (const Json& item : list)
    if (list.is_array()) items.push_back(convert(item));
  return items;
}

Json losses_to_json(const std::vector<Loss>& losses) {
  return list_to_json(losses, [](const Loss& loss) { return to_json(loss); });
}

// ---- State of a rank.

bool takes_part(const RankView& view) {
  return !view.left && !view.gone_at;
}

bool is_excused(const RankView& view, double now) {
  return view.gone_at && view.gone_in_stop && now - *view.gone_at < watch::stop_excuse_seconds;
}

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

/// Seconds since this rank's last message.
double news_age(const WatchTable& table, int rank, double now) {
  if (rank == table.self) return 0;
  return now - std::max(table.ranks[index(rank)].heard_at, table.watched_from);
}

bool is_silent(const WatchTable& table, const WatchOptions& options, int rank, double now) {
  return takes_part(table.ranks[index(rank)]) && news_age(table, rank, now) > watch::silence_limit(options);
}

/// Whether a message of the rank is recent enough to judge it.
bool is_known(const WatchTable& table, int rank) {
  return rank == table.self || table.ranks[index(rank)].heard_at >= table.watched_from;
}

/// Null if the thread is idle.
const Activity* activity_of(const RankView& view, const char* line) {
  for (const Activity& activity : view.news.activities)
    if (activity.line == line && !activity.phase.empty()) return &activity;
  return nullptr;
}

/// The main thread's activity. A long journal write counts as one. Empty if idle or unknown.
std::optional<Activity> main_activity(const RankView& view) {
  const Activity *main = activity_of(view, main_line), *journal = activity_of(view, journal_line);
  if (!main) return std::nullopt;
  Activity activity = *main;
  if (!journal || journal->seconds <= long_write_seconds) return activity;
  activity.phase = std::string(journal_line) + ": " + journal->phase;
  activity.waits_for_peers = false;
  activity.seconds = journal->seconds;
  activity.file = journal->file;
  activity.task_state = journal->task_state;
  return activity;
}

/// Duration of the activity since `watched_from`, or since all ranks joined a later restart.
double age_of(const WatchTable& table, const RankView& view, const Activity& activity, double now) {
  double from = table.watched_from;
  if (table.all_arrived_at) from = std::max(from, *table.all_arrived_at);
  return std::min(activity.seconds + now - view.heard_at, now - from);
}

Loss loss_of(const WatchTable& table, int rank, Loss::How how) {
  const RankView& view = table.ranks[index(rank)];
  Loss loss;
  loss.how = how;
  loss.rank = rank;
  loss.hostname = view.who.hostname;
  loss.device_uuid = view.who.device_uuid;
  if (const auto activity = main_activity(view)) {
    loss.phase = activity->phase;
    loss.step = activity->step;
    if (activity->phase.starts_with(journal_line))
      loss.text = "the disk of the run directory does not complete a write; use another --output";
  }
  return loss;
}

Loss stuck_main(const WatchTable& table, int rank, double now) {
  const RankView& view = table.ranks[index(rank)];
  Loss loss = loss_of(table, rank, Loss::How::stuck);
  if (auto activity = main_activity(view)) {
    loss.seconds = activity->seconds = age_of(table, view, *activity, now);
    if (!activity->file.empty()) {
      activity->phase = activity_of(view, journal_line)->phase;
      loss.text = blocked_file_text(*activity);
    }
  }
  return loss;
}

Loss silent_rank(const WatchTable& table, int rank, double now) {
  Loss loss = loss_of(table, rank, Loss::How::silent);
  loss.seconds = news_age(table, rank, now);
  return loss;
}

Loss vanished_rank(const WatchTable& table, int rank) {
  const RankView& view = table.ranks[index(rank)];
  Loss loss = loss_of(table, rank, Loss::How::vanished);
  if (const auto activity = main_activity(view))
    loss.seconds = std::max(0.0, activity->seconds + *view.gone_at - view.heard_at);
  return loss;
}

// ---- The rules. Each returns the ranks to blame; empty if it does not apply.

/// Ranks that exited unexpectedly or reported a failure. An exit causes failures on peers, so failed ranks
/// are blamed only if none exited. A rank that is outside its steps when a restart is ordered fails for that
/// reason only. If all failures are of this kind, the ranks that blocked the others before the restart are
/// blamed.
std::vector<Loss> ended_ranks(const WatchTable& table, double now) {
  std::vector<Loss> vanished, failed;
  bool any_by_restart = false;
  double since = now;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
    const RankView& view = table.ranks[index(rank)];
    if (view.news.failed && view.news.by_restart && !table.order.waited_for.empty()) {
      any_by_restart = true;
      since = std::min(since, view.failed_at.value_or(now));
    } else if (view.news.failed) {
      failed.push_back(loss_of(table, rank, Loss::How::failed));
      failed.back().text = *view.news.failed;
      since = std::min(since, view.failed_at.value_or(now));
    } else if (view.gone_at && !is_excused(view, now)) {
      vanished.push_back(vanished_rank(table, rank));
      since = std::min(since, *view.gone_at);
    }
  }
  if (table.ranks.size() > 1 && now - since < watch::gather_seconds) return {};
  if (!vanished.empty()) return vanished;
  if (!failed.empty() || !any_by_restart) return failed;
  std::vector<Loss> waited_for = table.order.waited_for;
  for (Loss& loss : waited_for)
    loss.text += fmt::format("{}the ranks can restart only in their steps", loss.text.empty() ? "" : "; ");
  return waited_for;
}

bool any_ended_its_steps(const WatchTable& table) {
  return std::any_of(table.ranks.begin(), table.ranks.end(),
                     [](const RankView& view) { return view.news.steps_ended; });
}

/// Ranks that did not join the restart, as they were when it was ordered. A rank whose steps had ended cannot
/// join. If no other rank is missing, the ranks that the restart waited for are blamed.
std::vector<Loss> missing_ranks(const WatchTable& table, const WatchOptions& options, double now) {
  std::vector<Loss> losses;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
    const RankView& view = table.ranks[index(rank)];
    if (!takes_part(view) || view.news.arrived >= table.order.number || view.news.steps_ended) continue;
    Loss loss = rank < static_cast<int>(table.as_ordered.size()) ? table.as_ordered[index(rank)]
                                                                 : stuck_main(table, rank, now);
    if (is_silent(table, options, rank, now)) loss.how = Loss::How::silent;
    for (const Loss& waited_for : table.order.waited_for)
      if (waited_for.rank == rank) loss = waited_for;
    loss.text += fmt::format("{}it did not come to restart {} within {:g} s", loss.text.empty() ? "" : "; ",
                             table.order.number, watch::arrival_grace_seconds);
    losses.push_back(std::move(loss));
  }
  return losses.empty() ? table.order.waited_for : losses;
}

/// Input of `culprits`. `old`: the activity of this rank's main thread lasts longer than allowed.
struct MainThread {
  int rank;
  Activity activity;
  bool old;
};

std::vector<MainThread> known_main_threads(const WatchTable& table, const WatchOptions& options, double now) {
  std::vector<MainThread> threads;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
    const RankView& view = table.ranks[index(rank)];
    const auto activity = main_activity(view);
    if (!activity || !takes_part(view) || !is_known(table, rank)) continue;
    threads.push_back(
        {rank, *activity, age_of(table, view, *activity, now) > watch::patience(*activity, options)});
  }
  return threads;
}

/// Threads at the min step that do not wait for peers, or all at that step if all of them wait.
std::vector<MainThread> hindmost(const std::vector<MainThread>& threads) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const MainThread& one : threads) least = std::min(least, one.activity.step);
  std::vector<MainThread> all, busy;
  for (const MainThread& one : threads) {
    if (one.activity.step != least) continue;
    all.push_back(one);
    if (!one.activity.waits_for_peers) busy.push_back(one);
  }
  return busy.empty() ? all : busy;
}

std::vector<MainThread> culprits(const std::vector<MainThread>& threads, const WatchOptions& options) {
  std::vector<MainThread> busy;
  bool any_old = false, long_work = false;
  for (const MainThread& one : threads) {
    any_old = any_old || one.old;
    long_work = long_work || (!one.old && one.activity.beats);
    if (one.activity.waits_for_peers) continue;
    if (one.old) busy.push_back(one);
    long_work = long_work ||
                (!one.old && watch::patience(one.activity, options) > options.collective_timeout_seconds);
  }
  if (!any_old || !busy.empty()) return busy;
  // All late threads wait for peers: for a thread whose long work is allowed or progresses, or for those at
  // the min step.
  return long_work ? std::vector<MainThread>() : hindmost(threads);
}

std::vector<Loss> stuck_main_threads(const WatchTable& table, const WatchOptions& options, double now) {
  const auto threads = known_main_threads(table, options, now);
  const auto blamed = culprits(threads, options);
  const bool all_wait = blamed.size() > 1 && blamed.size() == threads.size() &&
                        std::all_of(blamed.begin(), blamed.end(),
                                    [](const MainThread& one) { return one.activity.waits_for_peers; });
  std::vector<Loss> losses;
  for (const MainThread& one : blamed) {
    losses.push_back(stuck_main(table, one.rank, now));
    if (all_wait) losses.back().text = "all ranks wait for each other: which one is to blame is not known";
  }
  return losses;
}

/// Returns whether a rank has been quiet for a while, but not long enough to count as silent.
bool may_be_silent(const WatchTable& table, const WatchOptions& options, double now) {
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank)
    if (takes_part(table.ranks[index(rank)]) && news_age(table, rank, now) > watch::quiet_seconds &&
        !is_silent(table, options, rank, now))
      return true;
  return false;
}

bool any_excused(const WatchTable& table, double now) {
  return std::any_of(table.ranks.begin(), table.ranks.end(),
                     [&](const RankView& view) { return is_excused(view, now); });
}

/// Ranks that block the main threads: silent ones, and stuck ones that do not wait for peers.
std::vector<Loss> obstacles(const WatchTable& table, const WatchOptions& options, double now) {
  std::vector<Loss> losses;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank)
    if (is_silent(table, options, rank, now)) losses.push_back(silent_rank(table, rank, now));
  // Ranks cut off by one network failure go silent at slightly different times, so wait for all of them.
  if (may_be_silent(table, options, now) || (losses.empty() && any_excused(table, now))) return {};
  const bool any_silent = !losses.empty();
  for (Loss& loss : stuck_main_threads(table, options, now)) {
    const RankView& view = table.ranks[index(loss.rank)];
    const bool waits = main_activity(view)->waits_for_peers;
    if (any_silent && (waits || is_silent(table, options, loss.rank, now))) continue;
    losses.push_back(std::move(loss));
  }
  std::sort(losses.begin(), losses.end(), [](const Loss& a, const Loss& b) { return a.rank < b.rank; });
  return losses;
}

/// Threads other than main threads whose activity satisfies `is_stuck(activity, seconds)`.
template <typename IsStuck>
std::vector<Loss> background_threads(const WatchTable& table, double now, const IsStuck& is_stuck) {
  std::vector<Loss> losses;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
    const RankView& view = table.ranks[index(rank)];
    if (!takes_part(view) || !is_known(table, rank)) continue;
    for (const Activity& activity : view.news.activities) {
      if (activity.line == main_line || activity.phase.empty()) continue;
      const double age = age_of(table, view, activity, now);
      if (!is_stuck(activity, age)) continue;
      Loss loss = loss_of(table, rank, Loss::How::stuck);
      loss.phase = activity.line + ": " + activity.phase;
      if (activity.step >= 0) loss.step = activity.step;
      loss.seconds = age;
      if (!activity.file.empty()) {
        Activity blocked = activity;
        blocked.seconds = age;
        loss.text = blocked_file_text(blocked);
      }
      losses.push_back(std::move(loss));
    }
  }
  return losses;
}

std::vector<Loss> stuck_background(const WatchTable& table, const WatchOptions& options, double now) {
  return background_threads(table, now, [&](const Activity& activity, double age) {
    return age > watch::patience(activity, options);
  });
}

/// Threads whose file operation has run for half the collective timeout. They block the threads that wait for
/// them, and neither a peer nor a restart can end the operation. Only the last reported duration counts,
/// since a stopped process reports no newer one. The journal's disk is judged with the main thread.
std::vector<Loss> blocked_files(const WatchTable& table, const WatchOptions& options, double now) {
  return background_threads(table, now, [&](const Activity& activity, double) {
    return activity.line != journal_line && !activity.file.empty() &&
           activity.seconds > options.collective_timeout_seconds / 2;
  });
}

bool is_alone(const WatchTable& table) {
  return std::count_if(table.ranks.begin(), table.ranks.end(), takes_part) <= 1;
}

template <typename Reached>
bool all_reached(const WatchTable& table, const Reached& reached) {
  return std::all_of(table.ranks.begin(), table.ranks.end(),
                     [&](const RankView& view) { return !takes_part(view) || reached(view.news); });
}

}  // namespace

std::string to_text(const WatchNews& news) {
  return one_line({{"activities", list_to_json(news.activities, activity_to_json)},
                   {"failed", or_null(news.failed)},
                   {"fault", news.fault},
                   {"by_restart", news.by_restart},
                   {"arrived", news.arrived},
                   {"resumed", news.resumed},
                   {"steps_ended", news.steps_ended},
                   {"order", news.order.number},
                   {"waited_for", losses_to_json(news.order.waited_for)},
                   {"given_up", losses_to_json(news.given_up)},
                   {"words", news.words}});
}

std::optional<WatchNews> parse_watch_news(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !member(json, "activities").is_array()) return std::nullopt;
  WatchNews news;
  news.activities = list_from<Activity>(member(json, "activities"), activity_from);
  news.failed = value_at<std::string>(json, "failed");
  news.fault = member(json, "fault");
  news.by_restart = value_at<bool>(json, "by_restart").value_or(false);
  news.arrived = value_at<int>(json, "arrived").value_or(0);
  news.resumed = value_at<int>(json, "resumed").value_or(0);
  news.steps_ended = value_at<bool>(json, "steps_ended").value_or(false);
  news.order.number = value_at<int>(json, "order").value_or(0);
  news.order.waited_for = list_from<Loss>(member(json, "waited_for"), loss_from);
  news.given_up = list_from<Loss>(member(json, "given_up"), loss_from);
  for (const Json& word : member(json, "words"))
    if (word.is_string()) news.words.push_back(word.get<std::string>());
  return news;
}

double watch::silence_limit(const WatchOptions& options) {
  return std::max(options.collective_timeout_seconds, min_silence_seconds);
}

double watch::patience(const Activity& activity, const WatchOptions& options) {
  if (activity.patience_seconds > 0) return activity.patience_seconds;
  if (activity.line == main_line) return options.collective_timeout_seconds;
  return std::max(background_patience_seconds, background_timeouts * options.collective_timeout_seconds);
}

int leader(const WatchTable& table, const WatchOptions& options, double now) {
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank)
    if (takes_part(table.ranks[index(rank)]) && !is_silent(table, options, rank, now)) return rank;
  return table.self;
}

int deputy(const std::vector<Loss>& losses, int size) {
  const auto loss_at = [&](int rank) {
    return std::find_if(losses.begin(), losses.end(), [&](const Loss& loss) { return loss.rank == rank; });
  };
  for (int rank = 0; rank < size; ++rank)
    if (const auto loss = loss_at(rank); loss == losses.end() || loss->how == Loss::How::failed) return rank;
  for (int rank = 0; rank < size; ++rank)
    if (loss_at(rank)->how == Loss::How::stuck) return rank;
  return 0;
}

bool restart_open(const WatchTable& table) {
  return !all_reached(table, [&](const WatchNews& news) { return news.resumed >= table.order.number; });
}

bool all_arrived(const WatchTable& table) {
  return all_reached(table, [&](const WatchNews& news) { return news.arrived >= table.order.number; });
}

std::vector<Loss> main_threads(const WatchTable& table, const WatchOptions& options, double now) {
  std::vector<Loss> threads;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank)
    threads.push_back(is_silent(table, options, rank, now) ? silent_rank(table, rank, now)
                                                           : stuck_main(table, rank, now));
  return threads;
}

std::vector<LateStop> late_stops(const WatchTable& table, double now) {
  std::vector<LateStop> stops;
  for (int rank = 0; rank < static_cast<int>(table.ranks.size()); ++rank) {
    const RankView& view = table.ranks[index(rank)];
    const auto activity = main_activity(view);
    if (!activity || !takes_part(view)) continue;
    stops.push_back({.rank = rank,
                     .signal = {},
                     .phase = activity->phase,
                     .waits_for_peers = activity->waits_for_peers,
                     .step = activity->step,
                     .seconds = age_of(table, view, *activity, now)});
  }
  return stops;
}

WatchDecision judge(const WatchTable& table, const WatchOptions& options, double now) {
  using Act = WatchDecision::Act;
  if (auto ended = ended_ranks(table, now); !ended.empty()) return {Act::give_up, std::move(ended)};
  if (restart_open(table) && !all_arrived(table)) {
    if (now - table.ordered_at <= watch::arrival_grace_seconds) return {};
    return {Act::give_up, missing_ranks(table, options, now)};
  }
  if (auto held_up_by = obstacles(table, options, now); !held_up_by.empty()) {
    if (auto blocked = blocked_files(table, options, now); !blocked.empty())
      return {Act::give_up, std::move(blocked)};
    const bool restart =
        !is_alone(table) && !any_ended_its_steps(table) && table.order.number < options.max_restarts;
    return {restart ? Act::restart : Act::give_up, std::move(held_up_by)};
  }
  if (auto stuck = stuck_background(table, options, now); !stuck.empty())
    return {Act::give_up, std::move(stuck)};
  return {};
}

}  // namespace egt
