// Compiles stb_image. CMakeLists.txt disables its warnings.
#include <cstdlib>

#include "loadtest/images/image_file.hpp"

namespace {

/// A small file may decompress to more than the node's memory.
void* limited_realloc(void* memory, std::size_t bytes) {
  return bytes > static_cast<std::size_t>(egt::max_image_bytes) ? nullptr : std::realloc(memory, bytes);
}

}  // namespace

#define STBI_MALLOC(bytes) limited_realloc(nullptr, bytes)
#define STBI_REALLOC(memory, bytes) limited_realloc(memory, bytes)
#define STBI_FREE(memory) std::free(memory)
#define STBI_ASSERT(condition) static_cast<void>(0)  // a damaged JPEG must not abort the process
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
#define STBI_NO_STDIO
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
