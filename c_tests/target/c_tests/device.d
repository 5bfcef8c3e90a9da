target/c_tests/device.o: device.c device.h check.h
device.h:
check.h:
