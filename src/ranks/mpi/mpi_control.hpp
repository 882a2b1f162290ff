#pragma once

#include <memory>

#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Control over MPI, on a communicator of its own. Collective: all ranks open it in the same order among what
/// they open. `timeout_seconds` bounds this call, each call of the control, and its destructor. After a
/// timeout the same control may go on: a late peer's call then matches the one that timed out. A text has
/// less than 2^31 bytes, all ranks' texts of one gather together too.
Result<std::unique_ptr<Control>> open_mpi_control(MpiSession& session, double timeout_seconds);

}  // namespace egt
