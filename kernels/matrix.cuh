#pragma once

#include "egt/core/view.hpp"
#include "kernels/vector.cuh"

/// Traversal of row-major matrices with one pack of columns per thread.
namespace egt::kernels {

constexpr int matrix_threads = 256;

/// Elements of T per access.
template <typename T>
constexpr int pack_width = vector_bytes / static_cast<int>(sizeof(T));

/// True if every row can be read in packs of `n`.
inline bool in_packs(const MatrixView& m, int n) {
  return m.columns % n == 0 && m.leading % n == 0 &&
         reinterpret_cast<std::uintptr_t>(m.data) % vector_bytes == 0;
}

/// Grid and block for a matrix, with `rows_each` rows per thread. Kernels loop over rows beyond the grid.
struct MatrixGrid {
  dim3 grid;
  dim3 block;

  MatrixGrid(const MatrixView& m, int pack, int rows_each) {
    const std::int64_t packs = divide_up(m.columns, std::int64_t{pack});
    int across = 1;
    while (across < matrix_threads && across < packs) across *= 2;
    const int down = matrix_threads / across;
    const std::int64_t most = 65535, blocks_down = divide_up(m.rows, std::int64_t{down} * rows_each);
    block = dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
    grid = dim3(static_cast<unsigned>(divide_up(packs, std::int64_t{across})),
                static_cast<unsigned>(blocks_down < most ? blocks_down : most));
  }
};

}  // namespace egt::kernels
