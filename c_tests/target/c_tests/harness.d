target/c_tests/harness.o: harness.c harness.h \
 /tmp/wt/graph/include/wholememory/error.h \
 /tmp/wt/graph/include/wholememory/wholememory.h \
 /tmp/wt/graph/include/wholememory/global_reference.h \
 /tmp/wt/graph/include/wholememory/wholememory_tensor.h \
 /tmp/wt/graph/include/wholememory/tensor_description.h check.h \
 holdings.h device.h mpi_ranks.h
harness.h:
/tmp/wt/graph/include/wholememory/error.h:
/tmp/wt/graph/include/wholememory/wholememory.h:
/tmp/wt/graph/include/wholememory/global_reference.h:
/tmp/wt/graph/include/wholememory/wholememory_tensor.h:
/tmp/wt/graph/include/wholememory/tensor_description.h:
check.h:
holdings.h:
device.h:
mpi_ranks.h:
