#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "command/commands.hpp"
#include "command/run/main_job.hpp"
#include "egt/core/units.hpp"
#include "egt/ranks/agreement.hpp"
#include "judge/evidence.hpp"
#include "judge/record_schema.hpp"
#include "judge/result.hpp"
#include "judge/version.hpp"
#include "report/journal/journal.hpp"

namespace egt {
namespace {

/// The main job with the requested length, judged by all its evidence.
class BurnPurpose : public MainJob {
 public:
  Status refine(Options& options, Backend, const RankPlace& place) override {
    if (options.resumed.part > 0) {
      EGT_TRY(check_same_options(options.burn.resume, options.resumed.options, effective_options(options)));
      options.run.injections.clear();  // each was planned for one moment of the whole run
      reported_ =
          fmt::format("resumed after {} and {}; training restarts from the seed, since weights are not kept",
                      format_duration(options.resumed.seconds),
                      counted(static_cast<std::uint64_t>(options.resumed.steps), "step"));
      is_root_ = place.rank == 0;
      part_ = options.resumed.part;
    }
    return check_injections(options.run.injections, place.size, options.burn.train.covers_all());
  }
  Status claim(const std::string& directory) override;
  void begin(RecordQueue& records) override {
    if (is_root_) records.notice(reported_);
  }
  Verdict judge(const std::vector<Record>& records) override { return egt::judge(all(records)); }
  Json result(const std::vector<Record>& records, const Verdict& verdict) override {
    return build_result(all(records), verdict);
  }

 private:
  std::vector<Record> all(const std::vector<Record>& records) const {
    std::vector<Record> all = earlier_;
    all.insert(all.end(), records.begin(), records.end());
    return all;
  }

  std::vector<Record> earlier_;  ///< on rank 0: evidence from earlier parts of the run
  int part_ = 0;
  std::string reported_;
  bool is_root_ = false;
};

/// Reads the evidence so far on rank 0. Fails if any is missing.
Result<std::vector<Record>> read_evidence(const std::string& directory) {
  EGT_TRY_ASSIGN(Journals journals, read_journals(directory, JournalContent::evidence));
  if (journals.problems.empty()) return std::move(journals.records);
  return Status(StatusCode::invalid_argument,
                fmt::format("--resume {}: {}; see the output of `report`", directory, journals.problems[0]));
}

/// Reads the evidence again, now that no other process can resume the run.
Status BurnPurpose::claim(const std::string& directory) {
  if (!is_root_) return {};
  EGT_TRY_ASSIGN(earlier_, read_evidence(directory));
  EGT_TRY_ASSIGN(const ResumePoint point, resume_point_of(directory, earlier_));
  const std::vector<std::string> missing = missing_evidence(parts_of(earlier_), point.size, true);
  if (!missing.empty())
    return {StatusCode::invalid_argument,
            fmt::format("--resume {}: {}; start a new run", directory, missing.front())};
  if (point.part == part_) return {};
  return {StatusCode::unavailable,
          fmt::format("--resume {}: another one went on with this run meanwhile; start this one again",
                      directory)};
}

/// Returns the same ResumePoint on all ranks.
Result<ResumePoint> find_resume_point(const std::string& directory, Control& control) {
  Status read;
  std::string text;
  if (control.place().rank == 0) {
    auto evidence = read_evidence(directory);
    read = evidence.status();
    if (evidence.ok()) {
      const auto point = resume_point_of(directory, evidence.value());
      read = point.status();
      if (point.ok()) text = one_line(to_json(point.value()));
    }
  }
  EGT_TRY(agree(control, read));
  EGT_TRY_ASSIGN(text, control.broadcast(text));
  return resume_point_from(Json::parse(text, nullptr, false));
}

/// Effective values of options that were given again with --resume. Backend defaults are not known yet.
Json given_again(const Options& asked, const Options& options) {
  Json again = Json::object();
  const Json effective = effective_options(options);
  for (const auto& [name, value] : effective.items())
    if (asked.given.contains(name)) again[name] = value;
  return again;
}

Result<int> resume_burn(const Options& asked, MpiSession& mpi, Control& control, Clock::time_point started) {
  const std::string& directory = asked.burn.resume;
  EGT_TRY_ASSIGN(ResumePoint point, find_resume_point(directory, control));
  EGT_TRY(check_resume(directory, point, control.place().size, program_version()));
  Result<Options> options = resumed_options(asked, point.arguments);
  EGT_TRY(agree(control, options.status()));
  if (point.is_complete) {
    EGT_TRY(check_same_options(directory, point.options, given_again(asked, options.value())));
    if (control.place().rank == 0)
      fmt::print("The run in {} is complete: verdict {} (exit code {})\n", directory, point.verdict,
                 point.exit_code);
    return point.exit_code;
  }
  const RankPlace& place = control.place();
  const char* const slurm_node = std::getenv("SLURMD_NODENAME");
  EGT_TRY(agree(control,
                check_same_node(directory, point, place.rank, slurm_node ? slurm_node : place.hostname)));
  options.value().resumed = std::move(point);
  BurnPurpose purpose;
  return execute(options.value(), purpose, mpi, control, started);
}

}  // namespace

Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started) {
  if (!options.burn.resume.empty()) return resume_burn(options, mpi, control, started);
  BurnPurpose purpose;
  return execute(options, purpose, mpi, control, started);
}

}  // namespace egt
