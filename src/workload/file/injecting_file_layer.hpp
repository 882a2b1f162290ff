#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "workload/common/injector.hpp"
#include "workload/file/file_layer.hpp"

namespace egt {

/// Does a file layer inject faults of that kind?
constexpr bool is_of_files(InjectionKind kind) {
  return (row_of(kind).needs & needs_files) != 0;
}

/// Passes every call on to another layer, and changes what is really written where the injector says that a
/// fault is due. diskfull: from then on writes are refused, as by a full disk, with a count above 1 so many
/// of them. The others strike at most one block each time that a file is opened for writing, at the first
/// write that allows it. file-bit: words of a block are flipped; file-stale: a block that was written before
/// is not written again; file-torn: only its first half is; file-misplaced: it goes to the place of another,
/// and its own keeps what it held; file-lost: zeros are there instead, as of a block that a disk gave up.
/// Writes are whole blocks of 4096 bytes. `step` gives the step that was enqueued last; `seed` is of what an
/// injection leaves open. The injector outlives the layer.
std::unique_ptr<FileLayer> make_injecting_file_layer(std::unique_ptr<FileLayer> layer, Injector& injector,
                                                     std::function<std::int64_t()> step, std::uint64_t seed);

}  // namespace egt
