#include "loadtest/load_entry.hpp"

#include <gmock/gmock.h>

#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "loadtest/load_test.hpp"

namespace egt {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

LoadTest named(const std::string& name) {
  for (const LoadTest& test : load_tests())
    if (test.name == name) return test;
  return {};
}

LoadRun run_of(std::vector<double> ms, double seconds) {
  LoadRun run;
  for (const double one : ms) run.ms.add(one);
  run.seconds = seconds;
  return run;
}

LoadJobFigures job_of(double samples, double flops) {
  LoadJobFigures job;
  job.samples = samples;
  job.flops = flops;
  return job;
}

/// Of ranks that measured the same test, as reported by rank 0.
Json entry_of(const std::vector<LoadRun>& runs, const std::vector<LoadJobFigures>& jobs,
              const std::string& name = "train_simple_cnn_bs16", const LoadTestParts& parts = {}) {
  std::vector<double> all;
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    const std::vector<double> own = rank_figures(runs[rank], jobs[rank]);
    all.insert(all.end(), own.begin(), own.end());
  }
  return entry_figures(named(name), parts, all, static_cast<int>(runs.size()), runs[0], jobs[0]);
}

std::vector<double> hundred() {
  std::vector<double> ms(100);
  std::iota(ms.rbegin(), ms.rend(), 1);  // from 100 down to 1
  return ms;
}

TEST(LoadTests, AreTheSeedsAndTheRetrieval) {
  std::vector<std::string> names;
  std::set<std::string> descriptions;
  for (const LoadTest& test : load_tests()) {
    names.push_back(test.name);
    descriptions.insert(test.description);
  }
  EXPECT_THAT(names, testing::ElementsAre(
                         "train_simple_cnn_bs16", "train_simple_cnn_bs32", "train_simple_cnn_bs64",
                         "train_resnet18_bs8", "train_resnet18_bs16", "train_resnet18_bs32",
                         "infer_simple_cnn_bs16", "infer_simple_cnn_bs32", "infer_simple_cnn_bs64",
                         "infer_resnet18_bs8", "infer_resnet18_bs16", "infer_resnet18_bs32", "retrieval"));
  EXPECT_EQ(descriptions.size(), names.size()) << "each has its own";
}

TEST(LoadTests, AreWhatTheirNamesSay) {
  for (const LoadTest& test : load_tests()) {
    if (test.type == LoadTestType::retrieval) {
      EXPECT_EQ(test.name, "retrieval");
      EXPECT_EQ(test.batch, 0);
      continue;
    }
    const std::string verb = test.type == LoadTestType::training ? "train" : "infer";
    EXPECT_EQ(test.name, verb + "_" + to_string(test.network) + "_bs" + std::to_string(test.batch));
    const std::string network = test.network == NetworkKind::simple_cnn ? "CNN" : "ResNet";
    EXPECT_THAT(test.description, HasSubstr(" batch " + network + " " + to_string(test.type) + " - "));
  }
}

TEST(LoadEntries, PercentilesAreThoseOfTheIterations) {
  const Json entry = entry_of({run_of(hundred(), 10)}, {job_of(16, 1e9)});
  EXPECT_EQ(entry["iterations"], 100);
  EXPECT_TRUE(entry["iterations"].is_number_integer());
  EXPECT_DOUBLE_EQ(entry["avg_iteration_time_ms"], 50.5);
  EXPECT_NEAR(entry["iteration_time_p50_ms"].get<double>(), 50.0, 0.01 * 50.0);
  EXPECT_NEAR(entry["iteration_time_p95_ms"].get<double>(), 95.0, 0.01 * 95.0);
  EXPECT_NEAR(entry["iteration_time_p99_ms"].get<double>(), 99.0, 0.01 * 99.0);
  EXPECT_EQ(entry["iteration_time_max_ms"], 100.0);
  EXPECT_EQ(entry["duration_seconds"], 10.0);
  EXPECT_DOUBLE_EQ(entry["throughput_samples_per_second"], 160.0);
  EXPECT_DOUBLE_EQ(entry["tflops"], 0.01);
}

TEST(LoadEntries, FewIterationsHavePercentilesToo) {
  const Json one = entry_of({run_of({3}, 0.003)}, {job_of(8, 1)});
  for (const char* name : {"avg_iteration_time_ms", "iteration_time_p50_ms", "iteration_time_p95_ms",
                           "iteration_time_p99_ms", "iteration_time_max_ms"})
    EXPECT_NEAR(one[name].get<double>(), 3, 0.03) << name;
  const Json two = entry_of({run_of({4, 2}, 0.006)}, {job_of(8, 1)});
  EXPECT_NEAR(two["iteration_time_p50_ms"].get<double>(), 2.0, 0.01 * 2.0);
  EXPECT_NEAR(two["iteration_time_p95_ms"].get<double>(), 4.0, 0.01 * 4.0);
}

TEST(LoadEntries, RatesAreSummedAndTimesAreTheSlowestRanks) {
  const Json entry = entry_of({run_of({1, 1}, 2), run_of({3, 9}, 4), run_of({2, 2}, 4)},
                              {job_of(16, 1e12), job_of(16, 1e12), job_of(16, 2e12)});
  EXPECT_EQ(entry["devices"], 3);
  EXPECT_DOUBLE_EQ(entry["throughput_samples_per_second"], 16 + 8 + 8);
  EXPECT_DOUBLE_EQ(entry["tflops"], 1 + 0.5 + 1);
  EXPECT_DOUBLE_EQ(entry["avg_iteration_time_ms"], 6);
  EXPECT_NEAR(entry["iteration_time_p50_ms"].get<double>(), 3, 0.03);
  EXPECT_DOUBLE_EQ(entry["iteration_time_max_ms"], 9);
  EXPECT_DOUBLE_EQ(entry["duration_seconds"], 4);
  EXPECT_EQ(entry["iterations"], 2);
  ASSERT_EQ(entry["per_rank"].size(), 3u);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(entry["per_rank"][rank]["rank"], rank);
  EXPECT_EQ(entry["per_rank"][0]["throughput_samples_per_second"], 16.0);
  EXPECT_EQ(entry["per_rank"][1]["iteration_time_max_ms"], 9.0);
  EXPECT_EQ(entry["per_rank"][2]["tflops"], 1.0);
  EXPECT_TRUE(entry["per_rank"][2]["iterations"].is_number_integer());
}

TEST(LoadEntries, WhatWasNotMeasuredIsNull) {
  const Json entry = entry_of({run_of({}, 0)}, {job_of(16, 1e9)});
  for (const char* name :
       {"throughput_samples_per_second", "avg_iteration_time_ms", "iteration_time_p50_ms",
        "iteration_time_p95_ms", "iteration_time_p99_ms", "iteration_time_max_ms", "loss_first", "loss_last",
        "tflops", "peak_gpu_memory_mb", "peak_gpu_utilization_percent", "gpu_utilization_percent",
        "gpu_memory_mb", "cpu_percent", "host_memory_percent", "bottleneck"}) {
    ASSERT_TRUE(entry.contains(name)) << name;
    EXPECT_TRUE(entry[name].is_null()) << name;
  }
  EXPECT_EQ(entry["iterations"], 0);
  EXPECT_TRUE(entry["per_rank"][0]["tflops"].is_null());
  EXPECT_EQ(entry.dump().find("nan"), std::string::npos);
}

TEST(LoadEntries, ASumWithoutOneRanksFigureIsNone) {
  const Json entry = entry_of({run_of({1}, 1), run_of({}, 0)}, {job_of(16, 1), job_of(16, 1)});
  EXPECT_TRUE(entry["throughput_samples_per_second"].is_null()) << "it would not be of all devices";
  EXPECT_EQ(entry["avg_iteration_time_ms"], 1.0);
  EXPECT_EQ(entry["per_rank"][0]["throughput_samples_per_second"], 16.0);
  EXPECT_TRUE(entry["per_rank"][1]["throughput_samples_per_second"].is_null());
}

TEST(LoadEntries, LossesAndSensorsAreTold) {
  LoadRun run = run_of({1}, 1), other = run;
  SensorReading reading;
  for (const double percent : {40.0, 90.0, 80.0}) {
    reading.gpu_utilization_percent = percent;
    reading.memory_used_bytes = static_cast<std::uint64_t>(percent) << 20;
    run.add(reading, {.cpu_percent = percent / 10, .memory_percent = 5});
  }
  run.add({}, {});
  reading.gpu_utilization_percent = 95;
  other.add(reading, {});
  LoadJobFigures job = job_of(16, 1), of_other = job;
  job.loss_first = 8;
  job.loss_last = nan;
  of_other.loss_first = nan;
  of_other.loss_last = 2;
  const Json entry = entry_of({run, other}, {job, of_other});
  EXPECT_EQ(entry["gpu_utilization_percent"],
            Json({{"min", 40.0}, {"avg", 70.0}, {"max", 90.0}, {"last", 80.0}}));
  EXPECT_EQ(entry["gpu_memory_mb"], Json({{"min", 40.0}, {"avg", 70.0}, {"max", 90.0}, {"last", 80.0}}));
  EXPECT_EQ(entry["cpu_percent"], Json({{"min", 4.0}, {"avg", 7.0}, {"max", 9.0}, {"last", 8.0}}));
  EXPECT_EQ(entry["host_memory_percent"], Json({{"min", 5.0}, {"avg", 5.0}, {"max", 5.0}, {"last", 5.0}}));
  EXPECT_EQ(entry["peak_gpu_utilization_percent"], 95.0) << "of all ranks";
  EXPECT_EQ(entry["peak_gpu_memory_mb"], 90.0);
  EXPECT_EQ(entry["loss_first"], 8.0);
  EXPECT_EQ(entry["loss_last"], 2.0);
  EXPECT_TRUE(entry["per_rank"][0]["loss_last"].is_null());
}

TEST(LoadEntries, TellWhatTheTestWas) {
  LoadTestParts parts;
  parts.options.mode = LoadTestMode::independent;
  parts.options.pixels = 48;
  parts.precision = Precision::bf16;
  LoadJobFigures job = job_of(8, 1);
  job.bottleneck = "the loader";
  job.more = {{"num_workers", 3}};
  const Json entry = entry_of({run_of({1}, 1)}, {job}, "infer_resnet18_bs8", parts);
  EXPECT_EQ(entry["test_type"], "inference");
  EXPECT_EQ(entry["model_name"], "resnet18");
  EXPECT_EQ(entry["batch_size"], 8);
  EXPECT_EQ(entry["precision"], "bf16");
  EXPECT_EQ(entry["mode"], "independent");
  EXPECT_EQ(entry["image_size"], 48);
  EXPECT_EQ(entry["bottleneck"], "the loader");
  EXPECT_EQ(entry["num_workers"], 3);
  const Json retrieval = entry_of({run_of({1}, 1)}, {job_of(8, 1)}, "retrieval");
  EXPECT_EQ(retrieval["test_type"], "retrieval");
  EXPECT_EQ(retrieval["model_name"], "encoder");
  EXPECT_TRUE(retrieval["batch_size"].is_null());
  EXPECT_TRUE(retrieval["image_size"].is_null());
  EXPECT_EQ(retrieval["mode"], "ddp");
}

TEST(LoadEntries, AReportIsOfAllRanksAndFailsWithItsFailure) {
  LoadEntry entry;
  entry.test = named("train_resnet18_bs8");
  entry.figures = {{"tflops", 1.0}};
  const PartReport good = report_of(entry);
  EXPECT_EQ(good.name, "train_resnet18_bs8");
  EXPECT_THAT(good.description, StartsWith("Small batch ResNet training - "));
  EXPECT_TRUE(good.success);
  EXPECT_TRUE(good.of_all_ranks);
  EXPECT_EQ(good.figures, entry.figures);
  entry.failure = "rank 1: no memory";
  EXPECT_FALSE(report_of(entry).success);
  EXPECT_EQ(report_of(entry).failure, "rank 1: no memory");
}

TEST(LoadEntries, ALineForPeopleTellsWhatThereIs) {
  LoadEntry entry;
  entry.test = named("train_simple_cnn_bs16");
  LoadJobFigures job = job_of(16, 1);
  job.loss_first = 8.5;
  job.loss_last = 2.25;
  entry.figures = entry_of({run_of({2, 4}, 0.032)}, {job});
  EXPECT_EQ(line_of(entry),
            "train_simple_cnn_bs16: 1000 samples/s, 3 ms an iteration (p99 3.998), loss 8.5 to 2.25");
  entry.failure = "the loss did not fall";
  EXPECT_THAT(line_of(entry), HasSubstr("loss 8.5 to 2.25 failed: the loss did not fall"));
  entry.figures = entry_of({run_of({}, 0)}, {job_of(16, 1)});
  EXPECT_EQ(line_of(entry), "train_simple_cnn_bs16: failed: the loss did not fall");

  job.bottleneck = "images come late";
  job.more = {{"recall_at_1", 0.75}, {"recall_at_1_chance", 0.001}};
  entry.test = named("retrieval");
  entry.failure.clear();
  entry.figures = entry_of({run_of({2, 4}, 0.032)}, {job}, "retrieval");
  EXPECT_THAT(line_of(entry), HasSubstr(", recall@1 0.750 (chance 0.0010); images come late"));
  EXPECT_THAT(line_of(entry), Not(HasSubstr("loss")));
}

}  // namespace
}  // namespace egt
