#pragma once

#include "command/options/options.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"

/// One function a command: all ranks call it and return the same exit code, or the same Status.
namespace egt {

/// The main job. `started`: when the process began.
Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// About half a minute: does every device really compute, hold memory and exchange data? Fails and names the
/// one that does not.
Result<int> run_verify(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Puts in every fault that the checks claim to find, and fails where one is missed or blamed on a wrong
/// rank.
Result<int> run_selftest(const Options& options, MpiSession& mpi, Control& control,
                         Clock::time_point started);

/// Bandwidth and latency of every pair of devices, of devices and their hosts, and of collectives, all
/// verified; names what is slow.
Result<int> run_links(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// How training, voxelization and sensor fusion scale from one device to all.
Result<int> run_bench(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Trains and runs convolutional networks and a retrieval encoder, test by test.
Result<int> run_loadtest(const Options& options, MpiSession& mpi, Control& control,
                         Clock::time_point started);

/// Judges the run of a directory from its journals, writes its result and tells the verdict. Needs no ranks.
Result<int> run_report(const Options& options);

/// Holds result files against each other: tables, and the JSON or HTML file that --output names. Needs no
/// ranks.
Result<int> run_compare(const Options& options);

/// Lists every node's devices and what each supports, or why not.
Result<int> run_devices(const Options& options, MpiSession& mpi, Control& control);

}  // namespace egt
