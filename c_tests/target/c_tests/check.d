target/c_tests/check.o: check.c check.h
check.h:
