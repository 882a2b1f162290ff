#pragma once

#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// This process's place as its launcher states it in the environment. Read it before MPI_Init, which sets
/// some of these variables.
struct Launcher {
  const char* name = "";      ///< "Slurm"; empty: none is known
  const char* variable = "";  ///< that states the size
  const char* fix = "";       ///< how to start ranks that form one MPI_COMM_WORLD
  int rank = 0;
  int local_rank = 0;
  int size = 0;          ///< processes that it started; 0: not stated
  bool of_node = false;  ///< `size` counts those of this node only

  /// Is it known that another process of this launcher has rank 0?
  bool is_other_rank() const { return size > 1 && rank != 0; }
};

/// The innermost launcher: mpirun inside a Slurm step is Open MPI.
Launcher find_launcher();

/// unavailable if `launcher` started more processes than `world_size`, the size of MPI_COMM_WORLD, or another
/// number of them: each would run alone, on the first device.
Status check_world_size(const Launcher& launcher, int world_size);

}  // namespace egt
