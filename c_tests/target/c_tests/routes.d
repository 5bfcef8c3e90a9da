target/c_tests/routes.o: routes.c \
 /tmp/wt/graph/include/wholememory/wholememory_op.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h device.h table.h \
 env.h check.h harness.h /tmp/wt/graph/include/wholememory/error.h \
 holdings.h
/tmp/wt/graph/include/wholememory/wholememory_op.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
device.h:
table.h:
env.h:
check.h:
harness.h:
/tmp/wt/graph/include/wholememory/error.h:
holdings.h:
