#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/tables/summary.hpp"

namespace egt {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json train(const std::string& name, int batch) {
  return {{"test_name", name},
          {"test_type", "training"},
          {"rank", nullptr},
          {"model_name", "simple_cnn"},
          {"batch_size", batch},
          {"throughput_samples_per_second", 12345.6},
          {"avg_iteration_time_ms", 2.5},
          {"iteration_time_p50_ms", 2.25},
          {"iteration_time_p95_ms", 3.5},
          {"iteration_time_p99_ms", 4.75},
          {"tflops", 1.234},
          {"loss_first", 8.71},
          {"loss_last", 3.58},
          {"bottleneck", nullptr},
          {"success", true},
          {"failure", nullptr}};
}

Json retrieval() {
  Json entry = train("retrieval", 0);
  entry.update({{"test_type", "retrieval"},
                {"model_name", "encoder"},
                {"batch_size", nullptr},
                {"devices", 2},
                {"recall_at_1", 0.734},
                {"recall_at_5", 0.947},
                {"recall_at_10", 0.987},
                {"recall_at_1_untrained", 0.0},
                {"recall_at_1_chance", 0.001},
                {"training_single_seconds", 2.0},
                {"training_all_seconds", 1.0},
                {"training_speedup", 2.0},
                {"evaluation_single_seconds", 0.3},
                {"evaluation_all_seconds", 0.2},
                {"evaluation_speedup", 1.5}});
  return entry;
}

Json result(std::vector<Json> entries) {
  entries.push_back({{"test_name", "checks"}, {"rank", 0}, {"model_name", "of one rank"}, {"success", true}});
  return {{"schema", 1}, {"command", "loadtest"}, {"results", entries}};
}

TEST(LoadTestText, HasARowATest) {
  Json inference = train("infer_simple_cnn_bs64", 64);
  inference["loss_first"] = inference["loss_last"] = nullptr;
  const std::string text = loadtest_text(result({train("train_simple_cnn_bs16", 16), inference}));
  EXPECT_EQ(text,
            "Load tests, all devices together\n"
            "| Test                  | Batch | Samples/s |  ms |  p50 | p95 |  p99 | TFLOP/s | Loss |   to | "
            "Passed |\n"
            "|-----------------------|------:|----------:|----:|-----:|----:|-----:|--------:|-----:|-----:|-"
            "------:|\n"
            "| train_simple_cnn_bs16 |    16 |     12346 | 2.5 | 2.25 | 3.5 | 4.75 |    1.23 | 8.71 | 3.58 | "
            "   yes |\n"
            "| infer_simple_cnn_bs64 |    64 |     12346 | 2.5 | 2.25 | 3.5 | 4.75 |    1.23 |    - |    - | "
            "   yes |\n");
}

TEST(LoadTestText, IsTheSummaryOfItsCommand) {
  const Json whole = result({train("train_simple_cnn_bs16", 16)});
  EXPECT_EQ(summary_text(whole), loadtest_text(whole));
}

TEST(LoadTestText, TellsWhyATestFailedAndWhatHeldItUp) {
  Json failed = train("train_simple_cnn_bs16", 16), slow = train("train_simple_cnn_bs32", 32);
  failed.update({{"success", false}, {"failure", "rank 1: no\nmemory"}});
  slow.update({{"bottleneck", "the loader"}, {"images", "1 file cannot be read"}});
  const std::string text = loadtest_text(result({failed, slow}));
  EXPECT_THAT(text, HasSubstr(" 3.58 |     NO |\n"));
  EXPECT_THAT(text, HasSubstr("\n  train_simple_cnn_bs16: rank 1: no?memory\n"
                              "  train_simple_cnn_bs32: the loader\n"
                              "  train_simple_cnn_bs32: 1 file cannot be read\n"));
}

TEST(LoadTestText, ComparesOneDeviceAloneWithAllInTheRetrieval) {
  const std::string text = loadtest_text(result({retrieval()}));
  EXPECT_THAT(text, HasSubstr("\n| retrieval |     - | "));
  EXPECT_THAT(
      text, HasSubstr("Retrieval, one device alone and all together\n"
                      "| Phase      | Single device | All 2 | Speedup |\n"
                      "|------------|--------------:|------:|--------:|\n"
                      "| Training   |           2 s |   1 s |   2.00x |\n"
                      "| Evaluation |         0.3 s | 0.2 s |   1.50x |\n"
                      "  recall@1 0.734, @5 0.947, @10 0.987; before training @1 0.000, by chance 0.0010\n"));
}

TEST(LoadTestText, LeavesOutWhatIsNotThere) {
  EXPECT_EQ(loadtest_text(Json::object()), "");
  EXPECT_EQ(loadtest_text(result({})), "");
  EXPECT_EQ(loadtest_text({{"results", {1, "x", nullptr, Json::array()}}}), "");
  Json lost = {{"test_name", "train_resnet18_bs8"},
               {"rank", nullptr},
               {"model_name", "resnet18"},
               {"failure", "the ranks lost communication in it"}};
  const std::string text = loadtest_text(result({lost}));
  EXPECT_THAT(text, HasSubstr("| train_resnet18_bs8 |     - |         - |"));
  EXPECT_THAT(text, HasSubstr("|     NO |\n  train_resnet18_bs8: the ranks lost communication in it\n"));
  Json unfinished = retrieval();
  unfinished["evaluation_speedup"] = nullptr;
  EXPECT_THAT(loadtest_text(result({unfinished})), Not(HasSubstr("Single device")));
}

}  // namespace
}  // namespace egt
