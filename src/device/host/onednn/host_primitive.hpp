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

/// What oneDNN throws.
Status status_of(const dnnl::error& error);

/// Temporary memory of a primitive is the stream's: primitives are made on one thread and run on another.
dnnl::primitive_attr primitive_attributes();

/// An argument of a primitive: how the caller's memory lies, and how the primitive wants it.
struct PrimitiveArgument {
  int name;  ///< DNNL_ARG_..
  dnnl::memory::desc plain, wanted;
  bool is_output = false;

  bool is_moved() const { return plain != wanted; }
};

/// A oneDNN primitive whose arguments lie as the port says; those that it wants otherwise are reordered on
/// the way, in the stream's scratch memory. Shared with what is enqueued, which may outlive the operation.
class HostPrimitive {
 public:
  /// `threads`: that share its work. Throws dnnl::error.
  HostPrimitive(const dnnl::engine& engine, int threads, dnnl::primitive primitive,
                const dnnl::memory::desc& scratchpad, std::vector<PrimitiveArgument> arguments);

  /// On the stream's thread; waits for its work. `data`: an address an argument, in order; more are not
  /// looked at.
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
