#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "ranks/mpi/launcher.hpp"

namespace egt {
namespace {

using Environment = std::map<std::string, std::string>;

/// The launcher detected in a process with these variables and no variables of another launcher.
Launcher launcher_in(const Environment& environment) {
  Launcher found;
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  found = find_launcher();
  for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
  return found;
}

bool starts(const Environment& environment, int world_size) {
  return check_world_size(launcher_in(environment), world_size).ok();
}

TEST(Launcher, RanksThatDoNotFormOneWorldAreRefused) {
  for (const Environment& two : {Environment{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}},
                                 Environment{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}},
                                 Environment{{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}},
                                 Environment{{"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}},
                                 Environment{{"PALS_LOCAL_SIZE", "2"}, {"PALS_RANKID", "0"}},
                                 Environment{{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "0"}},
                                 Environment{{"JSM_NAMESPACE_SIZE", "2"}, {"JSM_NAMESPACE_RANK", "0"}},
                                 Environment{{"MV2_COMM_WORLD_SIZE", "2"}, {"MV2_COMM_WORLD_RANK", "0"}},
                                 Environment{{"LOCAL_WORLD_SIZE", "2"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}},
                                 Environment{{"PMIX_RANK", "1"}}}) {
    SCOPED_TRACE(two.begin()->first);
    EXPECT_FALSE(starts(two, 1));
    EXPECT_TRUE(starts(two, 2));
  }
  EXPECT_EQ(check_world_size(launcher_in({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}), 1).what(),
            "Slurm states SLURM_STEP_NUM_TASKS=2, but MPI_COMM_WORLD has 1: use srun --mpi=pmix, or mpirun "
            "inside the job");
}

TEST(Launcher, ThatStatesOneNodeAllowsMoreNodes) {
  EXPECT_TRUE(starts({{"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}}, 4));
}

TEST(Launcher, ASingleRankInAnAllocationIsNoStep) {
  EXPECT_TRUE(starts({{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}}, 1));
  EXPECT_TRUE(starts({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}, 1));
  EXPECT_TRUE(starts({{"PBS_NP", "8"}}, 1));
  EXPECT_TRUE(starts({}, 1));
}

/// In a Slurm job mpirun starts its daemons by srun, one per node, and the ranks inherit srun's variables.
TEST(Launcher, TheInnermostOneIsMeant) {
  const Environment both{{"SLURM_STEP_NUM_TASKS", "2"},
                         {"SLURM_PROCID", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_RANK", "6"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
  EXPECT_TRUE(starts(both, 8));
  EXPECT_FALSE(starts(both, 2));
  EXPECT_EQ(launcher_in(both).rank, 6);
  EXPECT_EQ(launcher_in(both).local_rank, 2);
}

TEST(Launcher, ValuesThatAreNoNumbersAreNotUsed) {
  EXPECT_TRUE(starts({{"PMI_SIZE", "2x"}, {"PMI_RANK", ""}}, 1));
}

}  // namespace
}  // namespace egt
