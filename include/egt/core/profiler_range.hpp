#pragma once

namespace egt {

/// Labels the work that the calling thread enqueues during its lifetime in a profiler's timeline (an NVTX
/// range, as Nsight Systems shows it). No effect without a profiler or in builds without NVTX's header.
/// Ranges of one thread nest. `name` is copied.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace egt
