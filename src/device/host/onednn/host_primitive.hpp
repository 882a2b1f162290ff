#pragma once

#include <dnnl.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/host/host_stream.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Converts an exception of oneDNN to a Status.
Status status_of(const dnnl::error& error);

/// Attributes for scratchpads in the stream's memory: primitives do not run on the thread that creates them.
dnnl::primitive_attr primitive_attributes();

/// An argument of a primitive with the caller's memory layout and the primitive's preferred one.
struct PrimitiveArgument {
  int name;  ///< DNNL_ARG_..
  dnnl::memory::desc plain, wanted;
  bool is_output = false;

  bool is_moved() const { return plain != wanted; }
};

/// A oneDNN primitive with arguments in the port's layout. If the primitive prefers another layout, arguments
/// are reordered in the stream's scratch memory. Shared with enqueued work, which may outlive the operation.
class HostPrimitive {
 public:
  /// `threads`: number of threads that share the primitive's work. Throws dnnl::error.
  HostPrimitive(const dnnl::engine& engine, int threads, dnnl::primitive primitive,
                const dnnl::memory::desc& scratchpad, std::vector<PrimitiveArgument> arguments);

  /// Runs on the stream's thread and waits for completion. `data`: one address per argument of the
  /// constructor, in that order. Further addresses are ignored.
  Status run(HostStream& stream, std::span<void* const> data) const;

 private:
  struct Reordering {
    dnnl::reorder primitive;
    dnnl::memory::desc scratchpad;
  };
  struct Memory {
    dnnl::memory plain, wanted, scratchpad;
  };
  void reorder(const Memory& memory, const PrimitiveArgument& argument, dnnl::stream& queue) const;
  std::size_t scratch_bytes() const;

  dnnl::engine engine_;
  int threads_;
  dnnl::primitive primitive_;
  dnnl::memory::desc scratchpad_;
  std::vector<PrimitiveArgument> arguments_;
  std::unordered_map<int, Reordering> reorderings_;  ///< by the argument's name
};

}  // namespace egt
