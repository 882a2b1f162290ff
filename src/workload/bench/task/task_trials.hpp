#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workload/bench/bench_job.hpp"
#include "workload/bench/scaling_entry.hpp"

/// Trials in which groups of ranks run different jobs concurrently, and their references.
namespace egt {

/// Plans each job on all ranks without exchanged data, then one job per group of ranks. Needs two or more
/// ranks; `jobs`: two or more.
std::vector<BenchTrial> plan_tasks(const std::vector<BenchTask>& jobs, int ranks);

/// Assigns ranks to tasks, with batch counts that let all ranks finish together while the slowest runs a few.
/// Each device gets the job for which its model is relatively best, by mean standalone times (`models`: by
/// rank). So compute-bound jobs run on faster devices, and memory-bound jobs on devices with more of it.
/// Returns why that is not possible; empty if it is.
std::string assign_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries,
                         const std::vector<int>& models);

/// For a task trial, one entry per task, with one batch on each of its ranks. Other entries are unchanged.
std::vector<BenchEntry> parts_of(const BenchEntry& entry);

/// The entry of a rank's task, as if it were a trial of its own.
BenchEntry own_part(const BenchEntry& entry, int rank);

/// Fills in the times of the same batches run one job after the other, on one device and on all.
void complete_tasks(BenchEntry& entry, const std::vector<BenchEntry>& entries);

/// Each iteration runs `times` iterations of the job.
std::unique_ptr<BenchJob> repeated(std::unique_ptr<BenchJob> job, std::int64_t times);

}  // namespace egt
