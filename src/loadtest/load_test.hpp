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
#include "loadtest/convnet/network_plan.hpp"
#include "loadtest/images/image_folder.hpp"
#include "workload/options.hpp"

namespace egt {

enum class LoadTestType { training, inference, retrieval };
const char* to_string(LoadTestType type);

/// One test of the suite. Names are the seed's, such as "train_simple_cnn_bs16".
struct LoadTest {
  std::string name, description;
  LoadTestType type = LoadTestType::training;
  NetworkKind network = NetworkKind::simple_cnn;
  std::int64_t batch = 0;  ///< samples per rank and iteration
};

/// The twelve network tests, then the retrieval test.
std::vector<LoadTest> load_tests();

/// Outputs of the networks.
constexpr std::int64_t load_test_classes = 1000;

/// Context of the tests; outlives them.
struct LoadTestParts {
  LoadTestOptions options;
  Precision precision = Precision::fp32;
  Dnn* dnn = nullptr;
  const ImageFolder* folder = nullptr;  ///< null: images are generated
  /// Whether this process was asked to stop. Ends a test early.
  std::function<bool()> stopping = [] { return false; };
};

/// Scope in which an answer must be the same.
enum class LoadAnswerKind {
  state,    ///< in both rounds of a check: training state
  derived,  ///< the same, but derived from the state by all ranks together; ignored while the state is in
            ///< doubt
  replay,   ///< in all checks of a test
};

/// A tensor whose digest must be equal on all ranks of a device model.
struct LoadAnswer {
  std::string name;  ///< "weights", "activation of conv1"
  LoadAnswerKind kind = LoadAnswerKind::replay;
};

/// Values of one rank for the test's entry.
struct LoadJobFigures {
  double loss_first = std::numeric_limits<double>::quiet_NaN();  ///< NaN: not measured
  double loss_last = loss_first;
  double samples = 0;          ///< per iteration on this rank
  double flops = 0;            ///< per iteration on this rank
  Json more = Json::object();  ///< of the test; the same on all ranks except for times
  std::string bottleneck;      ///< one sentence; empty: none known
};

/// A test on this rank. All ranks make the same calls in the same order. Calls that wait have a deadline.
/// Used by one thread at a time.
class LoadJob {
 public:
  virtual ~LoadJob() = default;
  /// Total number of iterations.
  virtual std::int64_t iterations() const = 0;
  /// Runs `count` iterations and waits. Appends device times to `ms`, waits for data and peers included.
  virtual Status run(std::int64_t count, std::vector<double>& ms) = 0;
  /// The tensors digested in a check.
  virtual const std::vector<LoadAnswer>& answers() const = 0;
  /// Computes the answers on `stream()`, one digest each. `round` is 0, then 1, of a check.
  virtual Status enqueue_answers(Digest* digests, int round) = 0;
  virtual Stream& stream() = 0;
  /// Injects a fault into the test's own memory; kinds other than weight persist. Returns the place for
  /// display.
  virtual Result<std::string> inject(const Injection& injection, Flip& flip) = 0;
  virtual LoadJobFigures figures() const = 0;
  /// Why the test failed; empty: success.
  virtual std::string failure() const = 0;
  /// After the communicator was aborted: waits until no work is enqueued.
  virtual Status give_up(double timeout_seconds) = 0;
};

/// Allocate memory. `alone`: this rank only. Errors fail only this test if the device still works.
Result<std::unique_ptr<LoadJob>> make_network_test(Environment& environment, const LoadTestParts& parts,
                                                   const LoadTest& test);
Result<std::unique_ptr<LoadJob>> make_retrieval_test(Environment& environment, const LoadTestParts& parts,
                                                     Communicator& alone);

}  // namespace egt
