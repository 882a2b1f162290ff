#include "workload/bench/task/task_trials.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egt {
namespace {

/// Batches of the slowest device per iteration. The other devices' counts are rounded to whole batches.
constexpr double batches_of_slowest = 4;

BenchTrial trial_of(const BenchTask& task) {
  BenchTrial trial;
  trial.workload = task.workload;
  trial.size = task.size;
  trial.name = task.name;
  return trial;
}

/// Milliseconds per batch, by rank; NaN if not measured.
std::vector<double> alone_ms(const std::vector<BenchEntry>& entries, const BenchTask& task,
                             std::size_t ranks) {
  std::vector<double> ms(ranks, std::numeric_limits<double>::quiet_NaN());
  for (const BenchEntry& one : entries)
    if (one.tells_of_one() && one.trial.name == task.name)
      ms[static_cast<std::size_t>(one.trial.ranks.front())] = one.step->p50;
  return ms;
}

/// Time of the first job relative to the second, as the mean over the rank's model. Infinite without a time
/// of the first job; 0 without one of the second.
double disadvantage(const std::vector<double>& first, const std::vector<double>& second,
                    const std::vector<int>& models, std::size_t rank) {
  double sum = 0, count = 0;
  for (std::size_t r = 0; r < models.size(); ++r) {
    if (models[r] != models[rank]) continue;
    if (std::isnan(first[r])) return std::numeric_limits<double>::infinity();
    if (std::isnan(second[r])) return 0;
    sum += first[r] / second[r];
    ++count;
  }
  return sum / count;
}

/// Multiplies the iterations of the rank's job.
class RepeatedJob final : public BenchJob {
 public:
  RepeatedJob(std::unique_ptr<BenchJob> job, std::int64_t times) : job_(std::move(job)), times_(times) {}

  Result<Answers> answers() override { return job_->answers(); }
  Result<BurstTimes> burst(int chunks, std::int64_t per_chunk) override {
    return job_->burst(chunks, per_chunk * times_);
  }
  Result<JobReport> check() override { return job_->check(); }
  Status give_up(double seconds) override { return job_->give_up(seconds); }

 private:
  const std::unique_ptr<BenchJob> job_;
  const std::int64_t times_;
};

}  // namespace

std::vector<BenchTrial> plan_tasks(const std::vector<BenchTask>& jobs, int ranks) {
  std::vector<BenchTrial> trials;
  if (ranks < 2 || jobs.size() < 2) return trials;
  std::vector<std::string> names;
  for (const BenchTask& job : jobs) {
    trials.push_back(trial_of(job));
    trials.back().tasks = {job};
    names.push_back(job.name);
  }
  BenchTrial both = trial_of(jobs.front());
  both.size = 1;  // one batch of any job
  both.name = fmt::format("{}", fmt::join(names, " + "));
  both.tasks = jobs;
  trials.push_back(std::move(both));
  for (BenchTrial& trial : trials) {
    trial.mode = BenchMode::task;
    trial.ranks = first_ranks(ranks);
  }
  return trials;
}

std::string assign_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries,
                         const std::vector<int>& models) {
  std::vector<BenchTask>& tasks = entry.trial.tasks;
  const std::size_t ranks = models.size();
  std::vector<int> order = first_ranks(static_cast<int>(ranks));
  std::vector<double> own(ranks);
  std::vector<std::vector<double>> ms;
  for (const BenchTask& task : tasks) ms.push_back(alone_ms(entries, task, ranks));
  if (tasks.size() > 1)
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return disadvantage(ms[0], ms[1], models, static_cast<std::size_t>(a)) <
             disadvantage(ms[0], ms[1], models, static_cast<std::size_t>(b));
    });
  for (std::size_t t = 0; t < tasks.size(); ++t) {
    const auto at = [&](std::size_t i) {
      return order.begin() + static_cast<std::ptrdiff_t>(i * ranks / tasks.size());
    };
    tasks[t].ranks.assign(at(t), at(t + 1));
    std::sort(tasks[t].ranks.begin(), tasks[t].ranks.end());
    for (const int rank : tasks[t].ranks) {
      const auto r = static_cast<std::size_t>(rank);
      own[r] = ms[t][r];
      if (std::isnan(own[r]))
        return fmt::format("what rank {} alone does of {} is not known", rank, tasks[t].name);
    }
  }
  const double slowest = *std::max_element(own.begin(), own.end());
  for (std::size_t r = 0; r < ranks; ++r)
    entry.shares[r] = entry.trial.size * std::llround(batches_of_slowest * slowest / own[r]);
  return {};
}

std::vector<BenchEntry> parts_of(const BenchEntry& entry) {
  if (entry.trial.tasks.empty()) return {entry};
  std::vector<BenchEntry> parts;
  for (const BenchTask& task : entry.trial.tasks) {
    BenchEntry& part = parts.emplace_back();
    part.trial = trial_of(task);
    part.trial.ranks = task.ranks;
    part.shares.assign(task.ranks.size(), task.size);
  }
  return parts;
}

BenchEntry own_part(const BenchEntry& entry, int rank) {
  for (BenchEntry& part : parts_of(entry))
    if (part.trial.has(rank)) {
      part.trial.ranks = {rank};
      part.shares.resize(1);
      return std::move(part);
    }
  return entry;
}

void complete_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries) {
  double on_one = 0, on_all = 0;
  for (const BenchTask& task : entry.trial.tasks) {
    double batches = 0;
    for (const int rank : task.ranks)
      batches += static_cast<double>(entry.shares[static_cast<std::size_t>(rank)]);
    std::vector<double> ms = alone_ms(entries, task, entry.trial.ranks.size());
    on_one += batches * std::accumulate(ms.begin(), ms.end(), 0.0) / static_cast<double>(ms.size());
    const auto all = std::find_if(entries.begin(), entries.end(), [&](const BenchEntry& one) {
      return one.trial.mode == BenchMode::task && one.trial.name == task.name && one.step && one.success();
    });
    if (all == entries.end()) return;
    on_all += batches * all->step->p50 * static_cast<double>(task.size) / static_cast<double>(all->items());
  }
  entry.sequence_ms = on_all;
  if (!std::isnan(on_one)) entry.speedup = on_one / entry.step->p50;
}

std::unique_ptr<BenchJob> repeated(std::unique_ptr<BenchJob> job, std::int64_t times) {
  return std::make_unique<RepeatedJob>(std::move(job), times);
}

}  // namespace egt
