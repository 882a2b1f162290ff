#pragma once

#include <string>

#include "egt/core/record.hpp"

/// Readable text of a record's body, one line without its end; unknown values are left out.
namespace egt {

/// `identity`: of a start record, or an element of the result's `ranks`. "GPU 0"; if `name_host`, "GPU 0 on
/// node7". A device of the host backend is a "CPU".
std::string device_label(const Json& identity, bool name_host);
/// What an operator needs to find the board: "GPU 0 on node7, UUID GPU-1234, PCI 00000000:18:00.0, serial
/// 165", or "CPU 0 (AMD EPYC)".
std::string device_identity(const Json& identity, bool name_host);
/// "rank 2 on node7 is stuck: no progress for 4.1 s in train: sums, step 20"
std::string loss_text(const Json& loss);
/// "after SIGINT it was in step for 6.6 s, at step 5"
std::string late_stop_text(const Json& stop);
/// "rank 1 delayed all ranks for 4.1 s in train: sums: restart 1, the run continues at step 17"
std::string restart_text(const Json& restart);
/// "rank 1 on node7: step time 5.2 % above the median of its peers"
std::string finding_text(const Json& finding);

}  // namespace egt
