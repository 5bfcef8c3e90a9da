target/c_tests/launcher.o: launcher.c launcher.h \
 /tmp/wt/graph/include/wholememory/error.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h check.h harness.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h holdings.h
launcher.h:
/tmp/wt/graph/include/wholememory/error.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
check.h:
harness.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
holdings.h:
