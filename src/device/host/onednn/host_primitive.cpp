#if EGT_WITH_ONEDNN

#include "device/host/onednn/host_primitive.hpp"

#include <omp.h>

#include <utility>

#include <fmt/format.h>

namespace egt {
namespace {

std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t line = 64;
  return (bytes + line - 1) / line * line;
}

}  // namespace

Status status_of(const dnnl::error& error) {
  using enum StatusCode;
  const StatusCode code = error.status == dnnl_out_of_memory   ? out_of_memory
                          : error.status == dnnl_unimplemented ? unsupported
                                                               : internal;
  return {code, fmt::format("oneDNN: {}", error.message), error.status};
}

dnnl::primitive_attr primitive_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

HostPrimitive::HostPrimitive(const dnnl::engine& engine, int threads, dnnl::primitive primitive,
                             const dnnl::memory::desc& scratchpad, std::vector<PrimitiveArgument> arguments)
    : engine_(engine),
      threads_(threads),
      primitive_(std::move(primitive)),
      scratchpad_(scratchpad),
      arguments_(std::move(arguments)) {
  for (const PrimitiveArgument& argument : arguments_) {
    if (!argument.is_moved()) continue;
    const auto& from = argument.is_output ? argument.wanted : argument.plain;
    const auto& to = argument.is_output ? argument.plain : argument.wanted;
    const dnnl::reorder::primitive_desc made(engine, from, engine, to, primitive_attributes());
    reorderings_.emplace(argument.name, Reordering{dnnl::reorder(made), made.scratchpad_desc()});
  }
}

Status HostPrimitive::run(HostStream& stream, std::span<void* const> data) const {
  omp_set_num_threads(threads_);
  EGT_TRY_ASSIGN(std::byte * free, stream.scratch(scratch_bytes()));
  const auto take = [&](const dnnl::memory::desc& desc) {
    return dnnl::memory(desc, engine_, std::exchange(free, free + aligned(desc.get_size())));
  };
  try {
    dnnl::stream queue(engine_);
    std::vector<Memory> memory;
    std::unordered_map<int, dnnl::memory> given = {{DNNL_ARG_SCRATCHPAD, take(scratchpad_)}};
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const PrimitiveArgument& argument = arguments_[i];
      Memory& its = memory.emplace_back();
      its.wanted = its.plain = dnnl::memory(argument.plain, engine_, data[i]);
      if (argument.is_moved()) {
        its.wanted = take(argument.wanted);
        its.scratchpad = take(reorderings_.at(argument.name).scratchpad);
        if (!argument.is_output) reorder(its, argument, queue);
      }
      given[argument.name] = its.wanted;
    }
    primitive_.execute(queue, given);
    for (std::size_t i = 0; i < arguments_.size(); ++i)
      if (arguments_[i].is_moved() && arguments_[i].is_output) reorder(memory[i], arguments_[i], queue);
    queue.wait();
  } catch (const dnnl::error& error) {
    return status_of(error);
  }
  return {};
}

void HostPrimitive::reorder(const Memory& memory, const PrimitiveArgument& argument,
                            dnnl::stream& queue) const {
  const auto& from = argument.is_output ? memory.wanted : memory.plain;
  const auto& to = argument.is_output ? memory.plain : memory.wanted;
  reorderings_.at(argument.name)
      .primitive.execute(
          queue, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, memory.scratchpad}});
}

std::size_t HostPrimitive::scratch_bytes() const {
  std::size_t bytes = aligned(scratchpad_.get_size());
  for (const PrimitiveArgument& argument : arguments_)
    if (argument.is_moved())
      bytes +=
          aligned(argument.wanted.get_size()) + aligned(reorderings_.at(argument.name).scratchpad.get_size());
  return bytes + aligned(1);  // +1 byte so that no size is 0
}

}  // namespace egt

#endif
