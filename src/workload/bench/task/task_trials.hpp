#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workload/bench/bench_job.hpp"
#include "workload/bench/scaling_entry.hpp"

/// Trials in which groups of ranks do different jobs at the same time, and what they are held against.
namespace egt {

/// Each of these jobs on all ranks, without data from others, then one job a group of ranks: with two ranks
/// or more. `jobs`: at least two.
std::vector<BenchTrial> plan_tasks(const std::vector<BenchTask>& jobs, int ranks);

/// Which ranks do which task, and how many batches each makes while the slowest makes a few: so that all end
/// together. Devices go where they are best beside the others, by what each did alone, in the mean of its
/// model (`models`: by rank): so the job that computes goes to the faster ones, that for which memory counts
/// to those with more of it. Why that is not possible; empty: it is.
std::string assign_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries,
                         const std::vector<int>& models);

/// As if each task were a trial of its own, its ranks each alone; of other entries the entry itself.
std::vector<BenchEntry> parts_of(const BenchEntry& entry);

/// As if a rank did its task in a trial of its own.
BenchEntry own_part(const BenchEntry& entry, int rank);

/// Puts in what the same batches take one job after the other, on one device and on all.
void complete_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries);

/// Each iteration is `times` of the job's.
std::unique_ptr<BenchJob> repeated(std::unique_ptr<BenchJob> job, std::int64_t times);

}  // namespace egt
