#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command/commands.hpp"
#include "command/options/command_defaults.hpp"
#include "command/run/main_job.hpp"

namespace egt {
namespace {

/// Steps between checks, known answers and cycles of files: so short that each comes many times.
constexpr std::int64_t gpu_period = 50, host_period = 10;
constexpr std::int64_t gpu_file_period = 200;

/// About 20 s of a GPU, of which little is filled and written: with start and end about 30 s.
void put_gpu_defaults(OwnDefaults& own, BurnOptions& burn) {
  const std::vector<std::int64_t> layers = {4096, 4096, 2048, 1024, 512};  // fits beside the rest in 10 %
  own.put("duration", burn.duration_seconds, std::optional(20.0), "20s");
  own.put("layers", burn.train.layers, layers, fmt::format("{}", fmt::join(layers, ",")));
  own.put("extreme-iterations", burn.train.extreme_iterations, 20, "20");
  own.put("memory", burn.memory.fill, SizeOrShare{.share = 0.1, .bytes = 0, .is_share = true}, "10%");
  own.put("io-size", burn.file.size, std::uint64_t{64'000'000}, "64MB");
  burn.memory.buffer_iterations = 10;
  burn.collective.elements = 1u << 22;
  burn.file.every = gpu_file_period;
  burn.train.check_every = burn.train.epoch_steps = burn.collective.every = gpu_period;
}

void put_host_defaults(OwnDefaults& own, BurnOptions& burn) {
  const std::vector<std::int64_t> layers = {128, 256, 192, 128, 64, 32, 16};
  own.put("duration", burn.duration_seconds, std::optional(10.0), "10s");
  own.put("layers", burn.train.layers, layers, fmt::format("{}", fmt::join(layers, ",")));
  own.put("batch", burn.train.batch, std::int64_t{64}, "64");
  own.put("memory", burn.memory.fill, SizeOrShare{.share = 0, .bytes = 64'000'000}, "64MB");
  own.put("io-size", burn.file.size, std::uint64_t{4'000'000}, "4MB");
  burn.memory.buffer_iterations = 1;
  burn.collective.elements = 1u << 14;
  burn.train.check_every = burn.train.epoch_steps = burn.collective.every = burn.file.every = host_period;
}

ReadinessOptions readiness_for(Backend backend) {
  ReadinessOptions options{.every = gpu_period};
  if (backend == Backend::host)
    options = {.every = host_period,
               .samples = 64,
               .inputs = 128,
               .hidden = 128,
               .outputs = 32,
               .updated = 1 << 12,
               .cleanup_share = 0.001};
  return options;
}

/// The main job, small and often checked, and beside it the operations that it lacks.
class VerifyPurpose : public MainJob {
 public:
  Status refine(Options& options, Backend backend, const RankPlace& place) override {
    OwnDefaults own(options);
    backend == Backend::host ? put_host_defaults(own, options.burn) : put_gpu_defaults(own, options.burn);
    options.burn.file.repeats = 1;
    readiness_ = readiness_for(backend);
    told_ = own.told();
    is_root_ = place.rank == 0;
    return check_injections(options.run.injections, place.size);
  }
  void add_parts(BurnParts& parts) override { parts.readiness = readiness_; }
  void begin(RecordQueue& records) override {
    if (is_root_)
      records.notice(fmt::format("verify: checks every {} steps; defaults:{}", readiness_.every,
                                 told_.empty() ? " none" : told_));
  }

 private:
  ReadinessOptions readiness_;
  std::string told_;
  bool is_root_ = false;
};

}  // namespace

Result<int> run_verify(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started) {
  VerifyPurpose purpose;
  Run run(options, purpose, mpi, control, started);
  EGT_TRY(run.prepare());
  return run.run();
}

}  // namespace egt
