#pragma once

#include "command/options/options.hpp"
#include "egt/core/clock.hpp"
#include "egt/core/status.hpp"
#include "egt/ranks/control.hpp"
#include "ranks/mpi/mpi_session.hpp"

/// One function per command. All ranks call it and return the same exit code or Status.
namespace egt {

/// The main job. `started`: start time of the process.
Result<int> run_burn(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Checks in about half a minute that every device computes, holds memory and exchanges data. Reports each
/// device that fails.
Result<int> run_verify(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Injects every fault that the checks claim to detect. Fails if one is missed or attributed to the wrong
/// rank.
Result<int> run_selftest(const Options& options, MpiSession& mpi, Control& control,
                         Clock::time_point started);

/// Measures and verifies bandwidth and latency of all device pairs, of devices and their hosts, and of
/// collectives. Reports slow links.
Result<int> run_links(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Measures the scaling of training, voxelization and sensor fusion from one device to all.
Result<int> run_bench(const Options& options, MpiSession& mpi, Control& control, Clock::time_point started);

/// Trains and runs convolutional networks and a retrieval encoder, test by test.
Result<int> run_loadtest(const Options& options, MpiSession& mpi, Control& control,
                         Clock::time_point started);

/// Judges a run from the journals in its directory, writes its result and prints the verdict. Runs without
/// ranks.
Result<int> run_report(const Options& options);

/// Compares result files: prints tables, and writes the JSON or HTML file of --output. Runs without ranks.
Result<int> run_compare(const Options& options);

/// Lists the devices of every node, their supported features, and why others are unsupported.
Result<int> run_devices(const Options& options, MpiSession& mpi, Control& control);

}  // namespace egt
