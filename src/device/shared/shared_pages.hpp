#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/shared/shared_handle.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Host memory pages mapped by several processes: an anonymous memory file, released with its last mapping.
/// Move-only; the destructor unmaps it and closes the file. A mapping stays valid after the owner's ends.
class SharedPages {
 public:
  /// Zeroed pages; out_of_memory if the system lacks memory.
  static Result<SharedPages> create(std::size_t bytes);
  /// Maps pages of another process of this node, or of this one, by the owner's handle. `unavailable`: the
  /// owner has exited or released them, or access is denied (requires the same user).
  static Result<SharedPages> open(const SharedHandle& handle);

  void* data() const { return mapping_->data; }
  std::size_t bytes() const { return mapping_->bytes; }
  /// For `open`; valid as long as these pages.
  std::string handle() const { return handle_; }

 private:
  struct Mapping {
    ~Mapping();
    void* data = nullptr;
    std::size_t bytes = 0;
    Descriptor file;  ///< open only in the owner
  };
  SharedPages(std::unique_ptr<Mapping> mapping, std::string handle)
      : mapping_(std::move(mapping)), handle_(std::move(handle)) {}

  std::unique_ptr<Mapping> mapping_;
  std::string handle_;
};

/// Signals that a process has released another one's memory. `pages`: initially zeroed and shared by both.
void report_released(const SharedPages& pages);
/// Whether the release was signaled or `process`, which would signal it, has exited.
bool is_released(const SharedPages& pages, int process);

}  // namespace egt
