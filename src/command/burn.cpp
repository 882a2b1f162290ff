#include "egt/command/commands.hpp"
#include "egt/report/result.hpp"
#include "run.hpp"

namespace egt {
namespace {

/// The main job: as long as it was asked for, judged by all that was found.
class BurnPurpose : public RunPurpose {
 public:
  Status refine(Options& options, Backend, const RankPlace& place) override {
    return check_injections(options.burn.injections, place.size);
  }
  Verdict judge(const std::vector<Record>& records) override { return egt::judge(records); }
  Json result(const std::vector<Record>& records, const Verdict& verdict) override {
    return build_result(records, verdict);
  }
};

}  // namespace

Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started) {
  BurnPurpose purpose;
  Run run(options, purpose, mpi, control, started);
  EGT_TRY(run.prepare());
  return run.run();
}

}  // namespace egt
