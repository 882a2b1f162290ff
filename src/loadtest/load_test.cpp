#include "loadtest/load_test.hpp"

#include <fmt/format.h>

namespace egt {
namespace {

struct Text {
  std::int64_t batch;
  const char* description;
};

void add(std::vector<LoadTest>& tests, LoadTestType type, NetworkKind network,
         std::initializer_list<Text> texts) {
  const char* const verb = type == LoadTestType::training ? "train" : "infer";
  for (const Text& text : texts)
    tests.push_back({.name = fmt::format("{}_{}_bs{}", verb, to_string(network), text.batch),
                     .description = text.description,
                     .type = type,
                     .network = network,
                     .batch = text.batch});
}

}  // namespace

const char* to_string(LoadTestType type) {
  constexpr const char* names[] = {"training", "inference", "retrieval"};
  return names[static_cast<int>(type)];
}

std::vector<LoadTest> load_tests() {
  using enum LoadTestType;
  using enum NetworkKind;
  std::vector<LoadTest> tests;
  add(tests, training, simple_cnn,
      {{16, "Small batch CNN training - Tests GPU efficiency with limited parallelism and memory usage"},
       {32, "Medium batch CNN training - Balanced test of GPU compute and memory bandwidth"},
       {64, "Large batch CNN training - Tests GPU memory capacity and high-throughput compute"}});
  add(tests, training, resnet18,
      {{8, "Small batch ResNet training - Tests GPU with complex operations and moderate memory usage"},
       {16, "Medium batch ResNet training - Balanced complex compute with memory efficiency"},
       {32, "Large batch ResNet training - Stress test for GPU memory and complex operations"}});
  add(tests, inference, simple_cnn,
      {{16, "Small batch CNN inference - Tests low-latency inference scenarios"},
       {32, "Medium batch CNN inference - Balanced inference throughput testing"},
       {64, "Large batch CNN inference - High-throughput inference performance test"}});
  add(tests, inference, resnet18,
      {{8, "Small batch ResNet inference - Complex model low-latency inference test"},
       {16, "Medium batch ResNet inference - Balanced complex inference workload"},
       {32, "Large batch ResNet inference - High-throughput complex model inference"}});
  tests.push_back({.name = "retrieval",
                   .description =
                       "Contrastive training, encoding and similarity search - Tests all devices on one "
                       "retrieval task, in shards",
                   .type = retrieval});
  return tests;
}

}  // namespace egt
