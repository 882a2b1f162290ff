#pragma once

namespace egt {

/// Open MPI ends the process with exit code 1 if MPI_Init fails, which would mean a fault. While one of these
/// lives, the process ends with exit_code::no_environment instead, after one line that names the likely
/// cause.
class MpiStart {
 public:
  MpiStart();
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;
};

}  // namespace egt
