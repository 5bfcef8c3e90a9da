// output[i] = convert(table[ids[i]]): rows.cuh has the kernels, this file those that move bytes from a table.

#include "dispatch.cuh"
#include "told.cuh"

int wmk_gather(const wmk_rows_args *args, wmk_stream stream) {
  return wmk::told(wmk::move_rows<wmk::Way::kGather>(args, stream));
}
