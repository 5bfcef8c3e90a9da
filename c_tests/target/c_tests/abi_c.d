target/c_tests/abi_c.o: abi_c.c \
 /tmp/wt/graph/include/wholememory/embedding.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/error.h \
 /tmp/wt/graph/include/wholememory/graph_op.h \
 /tmp/wt/graph/include/wholememory/wholegraph_op.h \
 /tmp/wt/graph/include/wholememory/wholememory_op.h harness.h check.h \
 holdings.h exports.inc
/tmp/wt/graph/include/wholememory/embedding.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/error.h:
/tmp/wt/graph/include/wholememory/graph_op.h:
/tmp/wt/graph/include/wholememory/wholegraph_op.h:
/tmp/wt/graph/include/wholememory/wholememory_op.h:
harness.h:
check.h:
holdings.h:
exports.inc:
