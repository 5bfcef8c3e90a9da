target/c_tests/tensors.o: tensors.c table.h env.h \
 /tmp/wt/graph/include/wholememory/env_func_ptrs.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h check.h harness.h \
 /tmp/wt/graph/include/wholememory/error.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h holdings.h
table.h:
env.h:
/tmp/wt/graph/include/wholememory/env_func_ptrs.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
check.h:
harness.h:
/tmp/wt/graph/include/wholememory/error.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
holdings.h:
