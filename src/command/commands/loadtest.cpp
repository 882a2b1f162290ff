#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "command/commands.hpp"
#include "command/run/measurement_run.hpp"
#include "egt/core/text.hpp"
#include "egt/ranks/agreement.hpp"
#include "loadtest/loadtest_workload.hpp"
#include "session/stop_signal.hpp"

namespace egt {
namespace {

/// The step of an injection is the number of the test in which it occurs.
Status check_loadtest_injections(const std::vector<Injection>& injections, int ranks) {
  const auto tests = load_tests();
  for (const Injection& injection : injections) {
    EGT_TRY(check_place(injection, in_loadtest, "loadtest"));
    const auto test = static_cast<std::size_t>(injection.step);
    if (test >= tests.size())
      return refuse(injection,
                    fmt::format("step is the number of a test here; use 0 to {}", tests.size() - 1));
    if (injection.kind == InjectionKind::gradient && tests[test].type == LoadTestType::inference)
      return refuse(injection,
                    fmt::format("{} makes no gradients; use the step of another test", tests[test].name));
  }
  return check_injections(injections, ranks);
}

class LoadTestRun final : public MeasurementRun {
 public:
  Status refine(Options& options, Backend backend, const RankPlace& place) override;
  Status choose(const Options& options, const Platform& platform, Control& control) override;
  void describe(StartBody& body) const override { body.precisions = {parts_.precision}; }
  void begin(RecordQueue& records) override;
  std::string result_copy() const override { return copy_; }

 private:
  std::unique_ptr<MeasurementWorkload> make_suite(Environment& environment) override {
    return std::make_unique<LoadTestSuite>(environment, *control_, parts_, std::move(dnn_));
  }
  Status check_copy() const;
  Status open_images();
  Status check_precision(const Options& options, const Device& device);

  LoadTestParts parts_;
  std::unique_ptr<Dnn> dnn_;             ///< until it is moved to the suite
  std::unique_ptr<ImageFolder> images_;  ///< null: generated images
  std::string copy_;                     ///< file of --output; empty: --output is a directory
  std::string reported_;
  std::uint64_t seed_ = 0;
  Control* control_ = nullptr;
  RankPlace place_;
};

Status LoadTestRun::refine(Options& options, Backend, const RankPlace& place) {
  reported_ = options.command_defaults;
  if (!options.loadtest.data.empty() && options.loadtest.workers == 0)
    return refuse("--data", "images of files need threads that read them; add --num-workers 1 or more");
  if (options.common.output.ends_with(".json")) copy_ = std::exchange(options.common.output, "");
  return check_loadtest_injections(options.run.injections, place.size);
}

/// Called before the tests, whose result would be lost if the copy cannot be written.
Status LoadTestRun::check_copy() const {
  if (copy_.empty()) return {};
  std::error_code error;
  const std::filesystem::path path(copy_);
  if (std::filesystem::is_directory(path, error))
    return refuse(fmt::format("--output {}", printable(copy_)), "is a directory; name a file");
  std::string probe = copy_ + ".XXXXXX";
  const int file = ::mkstemp(probe.data());
  if (file < 0)
    return {StatusCode::unavailable, fmt::format("--output {}: no file can be written there: {}",
                                                 printable(copy_), std::strerror(errno))};
  ::close(file);
  ::unlink(probe.c_str());
  return {};
}

/// On every rank, since each node reads its own folder.
Status LoadTestRun::open_images() {
  const LoadTestOptions& options = parts_.options;
  if (options.data.empty()) return {};
  auto opened = ImageFolder::open(options.data, seed_, options.pixels, {});
  if (!opened.ok()) return {opened.status().code(), fmt::format("--data {}", opened.status().what())};
  images_ = std::move(opened.value());
  parts_.folder = images_.get();
  if (images_->classes() <= load_test_classes) return {};
  return {StatusCode::unsupported,
          fmt::format("--data {}: {} classes, and the networks have {} outputs", printable(options.data),
                      images_->classes(), load_test_classes)};
}

Status LoadTestRun::check_precision(const Options& options, const Device& device) {
  EGT_TRY_ASSIGN(const auto precisions, choose_precisions(options.burn.precision, device));
  if (precisions.size() != 1) return refuse("--precision cycle", "the tests take one precision; name it");
  parts_.precision = precisions.front();
  if (const Support support = dnn_->supports(parts_.precision); !support.yes())
    return {StatusCode::unsupported,
            fmt::format("--precision {}: {}", options.burn.precision, support.why_not)};
  return {};
}

Status LoadTestRun::choose(const Options& options, const Platform& platform, Control& control) {
  control_ = &control;
  place_ = control.place();
  parts_.options = options.loadtest;
  parts_.stopping = [] { return StopSignal::received() != 0; };
  auto dnn = open_dnn(*platform.device);
  EGT_TRY(agree(control, dnn.status()));
  dnn_ = std::move(dnn.value());
  parts_.dnn = dnn_.get();
  EGT_TRY(agree(control, check_precision(options, *platform.device)));
  seed_ = options.common.seed;
  EGT_TRY(agree(control, open_images()));
  return agree(control, place_.rank == 0 ? check_copy() : Status());
}

void LoadTestRun::begin(RecordQueue& records) {
  if (place_.rank != 0) return;
  const LoadTestOptions& options = parts_.options;
  records.notice(fmt::format(
      "loadtest: {} tests of {} x {} iterations, images of {} x {} pixels, {} with {}; defaults:{}",
      load_tests().size(), options.epochs, options.batches, options.pixels, options.pixels,
      to_string(parts_.precision), dnn_->library(), reported_.empty() ? " none" : reported_));
}

}  // namespace

std::unique_ptr<RunPurpose> make_loadtest() {
  return std::make_unique<LoadTestRun>();
}

}  // namespace egt
