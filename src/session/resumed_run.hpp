#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

/// A run that was cut goes on: `burn --resume DIR`. What was done counts by the journals; weights are not
/// kept on disk, so training begins anew from the seed.
namespace egt {

/// What every rank has to know of a run that it goes on with.
struct ResumePoint {
  bool is_complete = false;            ///< all ranks ended, and by themselves: there is nothing to go on with
  std::string verdict;                 ///< as it is now
  int exit_code = 0;                   ///< likewise
  std::string command;                 ///< of the run
  std::string program_version;         ///< that began it
  std::vector<std::string> arguments;  ///< as the user typed them
  Json options;                        ///< every one in effect
  int size = 0;                        ///< ranks
  std::vector<std::string> nodes;      ///< of each rank: Slurm's name of its node, else its host
  std::string run_id;                  ///< empty: begun by an earlier version
  int part = 0;                        ///< the number of the part that begins now, from 1
  std::int64_t steps = 0;              ///< that every rank has done
  double seconds = 0;                  ///< that every rank has run
};
Json to_json(const ResumePoint& point);
/// The reverse, of what to_json gave.
ResumePoint resume_point_from(const Json& json);

/// `records`: the evidence of all ranks that left some. invalid_argument: nothing says what to go on with.
Result<ResumePoint> resume_point_of(const std::string& directory, const std::vector<Record>& records);

/// Can a run of `ranks` ranks go on from there? invalid_argument in one line, where it cannot.
Status check_resume(const std::string& directory, const ResumePoint& point, int ranks,
                    const std::string& program_version);
/// invalid_argument where this rank ran on another node before: a verdict holds for the nodes that it names.
Status check_same_node(const std::string& directory, const ResumePoint& point, int rank,
                       const std::string& node);
/// invalid_argument where an option is in effect that was not, or not so.
Status check_same_options(const std::string& directory, const Json& before, const Json& now);

/// What is left of a plan, but never nothing: the run has to end in order.
std::optional<double> seconds_left(std::optional<double> planned, const ResumePoint& point);
std::optional<std::int64_t> steps_left(std::optional<std::int64_t> planned, const ResumePoint& point);

}  // namespace egt
