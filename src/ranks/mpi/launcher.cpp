#include "ranks/mpi/launcher.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

namespace egt {
namespace {

constexpr const char* with_this_mpi =
    "start the ranks with the mpirun of the Open MPI that this program uses";
constexpr const char* with_pmix = "use srun --mpi=pmix, or mpirun inside the job";

struct Row {
  const char* name;
  const char* size;  ///< number of started processes; null: no variable states it
  const char* rank;
  const char* local_rank;
  const char* fix;
  bool of_node = false;
};

/// The first row whose variable is set applies, so launchers that may run inside others come first. Variables
/// for the size of an allocation (SLURM_NTASKS, PBS_NP, LSB_DJOB_NUMPROC) are not listed, since a batch
/// script may start a single rank.
constexpr Row rows[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     with_this_mpi},
    {"MVAPICH's mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
     with_this_mpi},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK", with_this_mpi},
    {"Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID",
     "use flux run -o mpi=openmpi, or mpirun"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", with_pmix},
    {"a PMI launcher (mpiexec of MPICH or PALS)", "PMI_SIZE", "PMI_RANK", "PMI_LOCAL_RANK", with_this_mpi},
    {"Hydra (mpiexec of MPICH)", "MPI_LOCALNRANKS", "PMI_RANK", "MPI_LOCALRANKID", with_this_mpi, true},
    {"PALS", "PALS_LOCAL_SIZE", "PALS_RANKID", "PALS_LOCAL_RANKID", with_this_mpi, true},
    {"torchrun", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", with_this_mpi, true},
    {"a PMIx launcher", nullptr, "PMIX_RANK", "PMIX_LOCAL_RANK", with_this_mpi},
};

std::optional<int> number_of(const char* variable) {
  const char* const text = variable ? std::getenv(variable) : nullptr;
  if (!text) return std::nullopt;
  int number = 0;
  const char* const end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, number);
  return parsed.ec == std::errc() && parsed.ptr == end && number >= 0 ? std::optional(number) : std::nullopt;
}

}  // namespace

Launcher find_launcher() {
  for (const Row& row : rows) {
    const auto size = number_of(row.size), rank = number_of(row.rank);
    if (row.size ? !size : !rank) continue;
    return {.name = row.name,
            .variable = row.size ? row.size : row.rank,
            .fix = row.fix,
            .rank = rank.value_or(0),
            .local_rank = number_of(row.local_rank).value_or(rank.value_or(0)),
            .size = size.value_or(0),
            .of_node = row.of_node};
  }
  return {};
}

Status check_world_size(const Launcher& launcher, int world_size) {
  const bool fits = launcher.size == 0 || launcher.of_node
                        ? world_size >= launcher.size && world_size > launcher.rank
                        : world_size == launcher.size;
  if (fits) return {};
  return {StatusCode::unavailable,
          fmt::format("{} states {}={}, but MPI_COMM_WORLD has {}: {}", launcher.name, launcher.variable,
                      launcher.size > 0 ? launcher.size : launcher.rank, world_size, launcher.fix)};
}

}  // namespace egt
