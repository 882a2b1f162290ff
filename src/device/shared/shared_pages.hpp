#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/shared/shared_handle.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Pages of host memory that several processes map: a file in memory, without a name in any directory, that
/// ends with its last mapping. Move-only; unmaps, and closes the file, when it ends. A mapping stays valid
/// when the owner's has ended.
class SharedPages {
 public:
  /// Zeroed pages; out_of_memory where the system has not so many.
  static Result<SharedPages> create(std::size_t bytes);
  /// Those of another process of this host, or of this one, under the handle that it gave out. `unavailable`
  /// where they cannot be reached: the owner, or its pages, are no more, or the system permits it not (a
  /// process may open what another one of the same user has).
  static Result<SharedPages> open(const SharedHandle& handle);

  void* data() const { return mapping_->data; }
  std::size_t bytes() const { return mapping_->bytes; }
  /// For `open`; valid while these pages are.
  std::string handle() const { return handle_; }

 private:
  struct Mapping {
    ~Mapping();
    void* data = nullptr;
    std::size_t bytes = 0;
    Descriptor file;  ///< of the owner
  };
  SharedPages(std::unique_ptr<Mapping> mapping, std::string handle)
      : mapping_(std::move(mapping)), handle_(std::move(handle)) {}

  std::unique_ptr<Mapping> mapping_;
  std::string handle_;
};

/// By zeroed pages of both, a process that has opened another one's memory says that it has released it.
void tell_released(const SharedPages& pages);
/// It was said, or `process`, which would say it, is no more.
bool is_released(const SharedPages& pages, int process);

}  // namespace egt
