#pragma once

#include <memory>

#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"

namespace egt {

/// Control over its own MPI communicator. Collective: all ranks open their objects in the same order.
/// `timeout_seconds` bounds this call, each call of the control, and its destructor. After a timeout the
/// control may still be used, and a late peer's call matches the one that timed out. A text is limited to
/// less than 2^31 bytes, as are all ranks' texts of one gather together.
Result<std::unique_ptr<Control>> open_mpi_control(MpiSession& session, double timeout_seconds);

}  // namespace egt
