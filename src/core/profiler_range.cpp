#include "egt/core/profiler_range.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) static_cast<void>(name)
#define nvtxRangePop()
#endif

namespace egt {

ProfilerRange::ProfilerRange(const char* name) {
  nvtxRangePushA(name);
}

ProfilerRange::~ProfilerRange() {
  nvtxRangePop();
}

}  // namespace egt
