target/c_tests/holdings.o: holdings.c holdings.h
holdings.h:
