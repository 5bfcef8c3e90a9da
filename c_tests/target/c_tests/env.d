target/c_tests/env.o: env.c env.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h check.h device.h \
 table.h harness.h /tmp/wt/graph/include/wholememory/error.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h holdings.h
env.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
check.h:
device.h:
table.h:
harness.h:
/tmp/wt/graph/include/wholememory/error.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
holdings.h:
