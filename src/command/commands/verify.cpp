#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "command/commands.hpp"
#include "command/run/main_job.hpp"

namespace egt {
namespace {

/// Steps between checks, known-answer tests and file cycles, short enough for many repetitions.
constexpr std::int64_t gpu_period = 50, host_period = 10;
constexpr std::int64_t gpu_file_period = 200;

/// Small and often checked, like the option defaults: little memory is filled and few files are written.
void put_gpu_load(BurnOptions& burn) {
  burn.memory.buffer_iterations = 10;
  burn.collective.elements = 1u << 22;
  burn.file.every = gpu_file_period;
  burn.train.check_every = burn.train.epoch_steps = burn.collective.every = gpu_period;
}

void put_host_load(BurnOptions& burn) {
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

/// The main job, small and often checked, plus the operations that it lacks.
class VerifyPurpose : public MainJob {
 public:
  Status refine(Options& options, Backend backend, const RankPlace& place) override {
    reported_ = options.command_defaults;
    backend == Backend::host ? put_host_load(options.burn) : put_gpu_load(options.burn);
    options.burn.file.repeats = 1;
    readiness_ = readiness_for(backend);
    is_root_ = place.rank == 0;
    return check_injections(options.run.injections, place.size);
  }
  void add_parts(BurnParts& parts) override { parts.readiness = readiness_; }
  void begin(RecordQueue& records) override {
    if (is_root_)
      records.notice(fmt::format("verify: checks every {} steps; defaults:{}", readiness_.every,
                                 reported_.empty() ? " none" : reported_));
  }

 private:
  ReadinessOptions readiness_;
  std::string reported_;
  bool is_root_ = false;
};

}  // namespace

std::unique_ptr<RunPurpose> make_verify() {
  return std::make_unique<VerifyPurpose>();
}

}  // namespace egt
