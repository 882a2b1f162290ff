#include "device/nvml/nvml_library.hpp"

#include <dlfcn.h>

#include <fmt/format.h>

namespace egt::nvml {

Result<std::unique_ptr<Library>> Library::open(const char* file) {
  void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return Status(StatusCode::unavailable, fmt::format("no NVML ({}): install the NVIDIA driver", dlerror()));
  std::unique_ptr<Library> library(new Library(handle));
  if (library->init_ == nullptr)
    return Status(StatusCode::unavailable, fmt::format("{} has no nvmlInit_v2", file));
  if (const Code code = library->init_(); code != success)
    return Status(StatusCode::unavailable, fmt::format("NVML does not start: {}", library->error_text(code)),
                  code);
  library->initialized_ = true;
  return library;
}

Library::~Library() {
  if (initialized_ && shutdown_ != nullptr) shutdown_();
  dlclose(handle_);
}

Library::Symbol Library::find(const char* name, const char* older_name) const {
  void* const found = dlsym(handle_, name);
  return {found == nullptr && older_name != nullptr ? dlsym(handle_, older_name) : found};
}

std::string Library::error_text(Code code) const {
  return error_string_ != nullptr ? error_string_(code) : fmt::format("NVML error {}", code);
}

}  // namespace egt::nvml
