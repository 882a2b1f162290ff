#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "egt/core/status.hpp"
#include "egt/device/handles.hpp"
#include "kernels/launch.hpp"

namespace egt {

/// Deleters for unique_ptr. The owner's device must be current when they run.
struct CudaFree {
  void operator()(void* data) const { cudaFree(data); }
};
struct CudaStreamDestroy {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct CudaEventDestroy {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
struct CublasLtDestroy {
  void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
};
using CudaMemoryHandle = std::unique_ptr<void, CudaFree>;
using CudaStreamHandle = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, CudaStreamDestroy>;
using CudaEventHandle = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, CudaEventDestroy>;
using CublasLtHandle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, CublasLtDestroy>;

/// Allocates `bytes` of memory on the current device.
Result<CudaMemoryHandle> allocate_cuda_memory(std::size_t bytes);

class Device;

/// Holds back a device's work, see Device::hold, through a word of pinned memory that streams poll.
class CudaHold {
 public:
  Status allow(Device& device);
  bool is_allowed() const { return static_cast<bool>(words_); }
  void set(bool is_held);
  /// Enqueues, before an operation, a single-thread kernel that waits while work is held. Only if holds are
  /// allowed.
  int begin(const kernels::Launch& launch) const;
  /// timeout: work was held for too long on any stream since the last `forget`.
  Status status() const;
  void forget();

 private:
  enum Word : std::size_t { held, expired, words };
  std::uint32_t& word(Word which) const { return words_.as<std::uint32_t>()[which]; }

  Buffer words_;
};

/// A stream. If it supports GEMMs, it has its own cuBLASLt handle and workspace, so that results are bitwise
/// repeatable, and scratch memory for partial sums.
class CudaStream : public Stream {
 public:
  static Result<std::unique_ptr<CudaStream>> create(int device, StreamPriority priority, StreamUse use,
                                                    std::size_t workspace_bytes);
  /// Waits for the work up to a limit. The memory of a stuck device is not freed before the process exits.
  ~CudaStream() override;

  cudaStream_t native() const { return stream_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }
  void* workspace() const { return workspace_.get(); }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  void* scratch() const { return scratch_.get(); }

  /// The first error of this stream, or ok. After an error the stream rejects further work.
  const Status& first_error() const { return first_error_; }
  /// Keeps `status` if it is the first error, and returns it.
  Status keep(Status status);
  /// Accepts work again. A persistent device failure shows again at once.
  void forget_failure() { first_error_ = {}; }
  /// Whether all work is complete, or its error.
  Result<bool> finished();

 private:
  CudaStream(int device, StreamPriority priority, StreamUse use)
      : Stream(use), device_(device), priority_(priority) {}
  Status prepare_products(std::size_t workspace_bytes);

  const int device_;
  const StreamPriority priority_;
  CudaStreamHandle stream_;
  CublasLtHandle blas_;
  CudaMemoryHandle workspace_;
  std::size_t workspace_bytes_ = 0;
  CudaMemoryHandle scratch_;
  Status first_error_;
};

class CudaEvent : public Event {
 public:
  static Result<std::unique_ptr<CudaEvent>> create(int device, EventUse use);
  ~CudaEvent() override;

  cudaEvent_t native() const { return event_.get(); }

 private:
  CudaEvent(int device, EventUse use, cudaEvent_t event) : Event(use), device_(device), event_(event) {}

  const int device_;
  CudaEventHandle event_;
};

/// Downcasts of a Stream or Event that a CUDA device created.
inline CudaStream& as_cuda(Stream& stream) {
  return static_cast<CudaStream&>(stream);
}
inline CudaEvent& as_cuda(Event& event) {
  return static_cast<CudaEvent&>(event);
}
inline const CudaEvent& as_cuda(const Event& event) {
  return static_cast<const CudaEvent&>(event);
}

}  // namespace egt
