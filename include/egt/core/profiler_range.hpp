#pragma once

namespace egt {

/// What the calling thread enqueues while this lives has that name in a profiler's timeline (an NVTX range,
/// as Nsight Systems shows it); without a profiler, or where the program was built without NVTX's header,
/// nothing. Ranges of one thread nest. `name` is copied.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace egt
