#include "dispatch.cuh"

int wmk_gather(const wmk_rows_args *args, wmk_stream stream) { return wmk::move_rows<wmk::Way::kGather>(args, stream); }
