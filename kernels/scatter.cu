// table[ids[i]] = convert(input[i]): rows.cuh has the kernels, this file those that move bytes into a table.

#include "dispatch.cuh"
#include "told.cuh"

int wmk_scatter(const wmk_rows_args *args, wmk_stream stream) {
  return wmk::told(wmk::move_rows<wmk::Way::kScatter>(args, stream));
}
