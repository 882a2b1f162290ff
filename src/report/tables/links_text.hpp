#pragma once

#include <string>

#include "egt/core/record.hpp"

namespace egt {

/// What `links` measured, for people: the pairs, matrices of bandwidth, latency and link types (as
/// `nvidia-smi topo -m` has them), devices and their hosts, collectives, a summary and warnings. A pure
/// function of the result (see build_result).
std::string links_text(const Json& result);

}  // namespace egt
