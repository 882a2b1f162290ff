#pragma once

namespace egt {

/// Open MPI exits with code 1 if MPI_Init fails, which would mean a fault. While an object of this class
/// exists, the process ends with exit_code::no_environment instead, after one line with the likely cause.
class MpiStart {
 public:
  MpiStart();
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;
};

}  // namespace egt
