#include "dispatch.cuh"

int wmk_scatter(const wmk_rows_args *args, wmk_stream stream) {
  return wmk::move_rows<wmk::Way::kScatter>(args, stream);
}
