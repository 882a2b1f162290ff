#pragma once

#include <string>

#include "egt/core/status.hpp"

namespace egt {

/// This process's rank as its launcher states it in the environment. Read it before MPI_Init, which sets some
/// of these variables.
struct Launcher {
  const char* name = "";      ///< "Slurm"; empty: unknown
  const char* variable = "";  ///< variable that states the size
  const char* fix = "";       ///< how to start ranks that form one MPI_COMM_WORLD
  int rank = 0;
  int local_rank = 0;
  int size = 0;          ///< started processes; 0: not stated
  bool of_node = false;  ///< `size` counts those of this node only

  /// Returns whether another process of this launcher is known to have rank 0.
  bool is_other_rank() const { return size > 1 && rank != 0; }
};

/// The innermost launcher: mpirun inside a Slurm step is Open MPI.
Launcher find_launcher();

/// unavailable if `launcher` started a number of processes other than `world_size`, the size of
/// MPI_COMM_WORLD. Each process would then run as a single rank, on the first device.
Status check_world_size(const Launcher& launcher, int world_size);

}  // namespace egt
