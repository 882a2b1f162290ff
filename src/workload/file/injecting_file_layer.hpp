#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "egt/workload/injector.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {

/// True if a file layer injects faults of this kind.
constexpr bool is_of_files(InjectionKind kind) {
  return (row_of(kind).needs & needs_files) != 0;
}

/// Forwards every call to another layer and modifies the written data when an injection is due. diskfull: all
/// later writes fail as on a full disk, or only `count` of them if count > 1. The other kinds hit up to one
/// block per opening of a file for writing, at the first suitable write.
/// file-bit: flips words of a block. file-stale: skips the rewrite of a block. file-torn: writes only its
/// first half. file-misplaced: writes it to another block's place; its own stays unchanged. file-lost: writes
/// zeros, as if the disk lost it.
/// Writes are whole blocks of 4096 bytes. `step`: returns the last enqueued step. `seed`: for unspecified
/// parameters of an injection. The injector must outlive the layer.
std::unique_ptr<FileLayer> make_injecting_file_layer(std::unique_ptr<FileLayer> layer, Injector& injector,
                                                     std::function<std::int64_t()> step, std::uint64_t seed);

}  // namespace egt
