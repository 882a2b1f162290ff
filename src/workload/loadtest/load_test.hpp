#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "egt/core/flip.hpp"
#include "egt/core/injection.hpp"
#include "egt/core/wait.hpp"
#include "egt/device/dnn.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/workload/workload.hpp"
#include "model/convnet/network_plan.hpp"
#include "workload/loadtest/image_folder.hpp"
#include "workload/options.hpp"

namespace egt {

enum class LoadTestType { training, inference, retrieval };
const char* to_string(LoadTestType type);

/// One test of the suite, as the seed names it: "train_simple_cnn_bs16".
struct LoadTest {
  std::string name, description;
  LoadTestType type = LoadTestType::training;
  NetworkKind network = NetworkKind::simple_cnn;
  std::int64_t batch = 0;  ///< samples of a rank in an iteration
};

/// The twelve tests of the networks, then the retrieval test.
std::vector<LoadTest> load_tests();

/// The networks' outputs.
constexpr std::int64_t load_test_classes = 1000;

/// What the tests are given; outlives them.
struct LoadTestParts {
  LoadTestOptions options;
  Precision precision = Precision::fp32;
  Dnn* dnn = nullptr;
  const ImageFolder* folder = nullptr;  ///< null: images are generated
  /// Was this process told to stop? Ends a test early.
  std::function<bool()> stopping = [] { return false; };
};

/// When an answer must be the same.
enum class LoadAnswerKind {
  state,    ///< in both rounds of a check: what training keeps
  derived,  ///< likewise, made from the state, by all ranks together; says nothing where the state is in
            ///< doubt
  replay,   ///< in all checks of a test
};

/// A tensor whose digest all ranks of a device model must give alike.
struct LoadAnswer {
  std::string name;  ///< "weights", "activation of conv1"
  LoadAnswerKind kind = LoadAnswerKind::replay;
};

/// Of one rank, for the test's entry.
struct LoadJobFigures {
  double loss_first = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not measured
  double loss_last = loss_first;
  double samples = 0;          ///< of an iteration of this rank
  double flops = 0;            ///< likewise
  Json more = Json::object();  ///< of the test, the same on all ranks but for times
  std::string bottleneck;      ///< one sentence; empty: none is known
};

/// A test on this rank. All ranks make the same calls in the same order; those that wait have a deadline. One
/// thread.
class LoadJob {
 public:
  virtual ~LoadJob() = default;
  /// How many of them there are.
  virtual std::int64_t iterations() const = 0;
  /// Makes so many and waits for them. `ms`: of each, on the device, waits for data and peers included.
  virtual Status run(std::int64_t count, std::vector<double>& ms) = 0;
  /// What is digested in a check.
  virtual const std::vector<LoadAnswer>& answers() const = 0;
  /// Makes them, one digest each, on `stream()`; `round` is 0, then 1, of a check.
  virtual Status enqueue_answers(Digest* digests, int round) = 0;
  virtual Stream& stream() = 0;
  /// Changes the test's own memory on purpose; the other kinds than weight in all that follows. Where: for
  /// people.
  virtual Result<std::string> inject(const Injection& injection, Flip& flip) = 0;
  virtual LoadJobFigures figures() const = 0;
  /// Why the test is no success; empty: it is one.
  virtual std::string failure() const = 0;
  /// After the communicator was given up: waits until nothing is enqueued.
  virtual Status give_up(double timeout_seconds) = 0;
};

/// Takes memory. `alone`: of this rank only. Errors concern this test only, where the device still works.
Result<std::unique_ptr<LoadJob>> make_network_test(Environment& environment, const LoadTestParts& parts,
                                                   const LoadTest& test);
Result<std::unique_ptr<LoadJob>> make_retrieval_test(Environment& environment, const LoadTestParts& parts,
                                                     Communicator& alone);

}  // namespace egt
