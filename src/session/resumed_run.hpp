#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

/// Resumes an interrupted run (`burn --resume DIR`) for the steps and seconds that its journals lack. Weights
/// are not saved, so training starts again with the initial weights of the run's seed.
namespace egt {

/// State of the interrupted run that every rank needs.
struct ResumePoint {
  bool is_complete = false;     ///< all ranks ended without a stop signal, so nothing is left to resume
  std::string verdict;          ///< current verdict
  int exit_code = 0;            ///< current exit code
  std::string command;          ///< command of the run
  std::string program_version;  ///< version that started the run
  std::vector<std::string> arguments;  ///< as typed by the user
  Json options;                        ///< all options in effect
  int size = 0;                        ///< number of ranks
  std::vector<std::string> nodes;      ///< per rank: Slurm's name of its node, else its hostname
  std::string run_id;                  ///< empty if started by an earlier version
  int part = 0;                        ///< number of the part that starts now, from 1
  std::int64_t steps = 0;              ///< steps that every rank has completed
  double seconds = 0;                  ///< seconds that every rank has run
};
Json to_json(const ResumePoint& point);
/// The inverse of to_json.
ResumePoint resume_point_from(const Json& json);

/// `records`: the evidence of all ranks that left any. invalid_argument if no start record exists.
Result<ResumePoint> resume_point_of(const std::string& directory, const std::vector<Record>& records);

/// Checks that a run of `ranks` ranks can resume at `point`. Otherwise returns a one-line invalid_argument.
Status check_resume(const std::string& directory, const ResumePoint& point, int ranks,
                    const std::string& program_version);
/// invalid_argument if this rank ran on another node before. A verdict is valid only for the nodes it lists.
Status check_same_node(const std::string& directory, const ResumePoint& point, int rank,
                       const std::string& node);
/// invalid_argument if an option in effect now was absent or different in the interrupted run.
Status check_same_options(const std::string& directory, const Json& before, const Json& now);

/// Remaining seconds or steps of the plan. Never zero, since the last part must start and end regularly.
std::optional<double> seconds_left(std::optional<double> planned, const ResumePoint& point);
std::optional<std::int64_t> steps_left(std::optional<std::int64_t> planned, const ResumePoint& point);

}  // namespace egt
