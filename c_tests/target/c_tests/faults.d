target/c_tests/faults.o: faults.c \
 /tmp/wt/graph/include/wholememory/wholememory_op.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h device.h \
 launcher.h /tmp/wt/graph/include/wholememory/error.h check.h harness.h \
 holdings.h table.h env.h
/tmp/wt/graph/include/wholememory/wholememory_op.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
device.h:
launcher.h:
/tmp/wt/graph/include/wholememory/error.h:
check.h:
harness.h:
holdings.h:
table.h:
env.h:
