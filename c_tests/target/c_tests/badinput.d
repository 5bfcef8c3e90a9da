target/c_tests/badinput.o: badinput.c \
 /tmp/wt/graph/include/wholememory/embedding.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/graph_op.h \
 /tmp/wt/graph/include/wholememory/wholegraph_op.h \
 /tmp/wt/graph/include/wholememory/wholememory_op.h device.h table.h \
 env.h check.h harness.h /tmp/wt/graph/include/wholememory/error.h \
 holdings.h exports.inc
/tmp/wt/graph/include/wholememory/embedding.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/graph_op.h:
/tmp/wt/graph/include/wholememory/wholegraph_op.h:
/tmp/wt/graph/include/wholememory/wholememory_op.h:
device.h:
table.h:
env.h:
check.h:
harness.h:
/tmp/wt/graph/include/wholememory/error.h:
holdings.h:
exports.inc:
