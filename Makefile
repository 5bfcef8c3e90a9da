# The command book of the project.
#
#   make               build the library (release)
#   make demo          set up, build, and find word neighbours with 4 ranks under mpirun
#   make test          set up and run everything CI runs; ends with "N passed, N failed"
#   make headers       generate include/wholememory/*.h again
#   make ctest NP=4    the C harness alone, with up to NP ranks (4)
#   make ctest-cuda    everything for a machine with GPUs; STAGES="harness memcheck" names some of scripts/gpu-check
#   make examples      build the examples and check what they print
#   make asan          the C harness under the address and leak sanitizers
#   make bench         the benchmark, on whatever platform there is; ARGS="..." are its options
#   make bench-cpu     the speed list of the CPU platform, with ratios
#   make bench-program and make example-programs build these alone; BUILD names their folder (build/examples)
#   make install PREFIX=/usr/local, an absolute path; DESTDIR goes in front of it
#   make clean

TARGET := $(or $(CARGO_TARGET_DIR),target)
LIBDIR ?= $(TARGET)/release
BUILD ?= build/examples
PREFIX ?= /usr/local
NP ?=
# One rank a GPU; without GPUs one a core, at most four.
RANKS ?= $(shell n=$$(ls /proc/driver/nvidia/gpus 2>/dev/null | wc -l); [ $$n -gt 0 ] || { n=$$(nproc); [ $$n -le 4 ] || n=4; }; echo $$n)
WORDS ?= king paris water july doctor
ENV := . scripts/environment &&

SHELL := /bin/bash
.DEFAULT_GOAL := build
.PHONY: build demo test headers ctest ctest-cuda examples example-programs asan bench bench-cpu bench-program install clean help

build:
	@scripts/setup build
	@$(ENV) cargo build --release

demo:
	@scripts/setup
	@$(ENV) cargo build --release
	@$(MAKE) -s $(BUILD)/word_neighbours
	@echo
	@scripts/mpirun --quiet -n 4 $(BUILD)/word_neighbours $(WORDS)
	@echo "Other words: make demo WORDS=\"january red quickly\""

test:
	@scripts/test

headers:
	@$(ENV) WHOLEMEMORY_WRITE_HEADERS=1 cargo test --test headers

ctest: build
	@LIBDIR=$(abspath $(LIBDIR)) INCLUDE=$(CURDIR)/include BUILD=$(CURDIR)/build/c_tests NP=$(NP) c_tests/run

ctest-cuda: build
	@LIBDIR=$(abspath $(LIBDIR)) scripts/gpu-check $(STAGES)

examples:
	@scripts/setup
	@$(ENV) cargo build --release
	@LIBDIR=$(LIBDIR) BUILD=$(BUILD) scripts/check-examples

asan:
	@scripts/test asan

bench: build bench-program
	@$(BUILD)/wholememory_bench --lib $(LIBDIR)/libwholegraph.so --nproc $(RANKS) $(ARGS)

bench-cpu: build bench-program
	@scripts/bench-cpu --lib $(LIBDIR)/libwholegraph.so --bench $(BUILD)/wholememory_bench

# Under sudo nothing is built that is there already, so that the tree stays its owner's.
install:
	@case "$(PREFIX)" in /*) ;; *) echo "PREFIX is \"$(PREFIX)\", it must be an absolute path" >&2; exit 2 ;; esac
	@[ -e $(LIBDIR)/libwholegraph.so ] || $(MAKE) -s build
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/wholememory
	install -m 755 $(LIBDIR)/libwholegraph.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 include/wholememory/* $(DESTDIR)$(PREFIX)/include/wholememory/
	@printf '%s\n' 'prefix=$(abspath $(PREFIX))' 'libdir=$${prefix}/lib' \
	  'includedir=$${prefix}/include' 'Name: wholegraph' 'Description: The WholeMemory native C API' 'Version: 26.10.0' \
	  'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lwholegraph' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/wholegraph.pc
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ! command -v ldconfig >/dev/null || ldconfig

clean:
	rm -rf build
	@$(ENV) cargo clean

help:
	@sed -n 's/^#   //p' Makefile

# The C programs. They find the library beside where it was built; with MPI where there is an mpicc and MPI is
# not 0, for machines without it with `make example-programs MPI=0`.
COMPILE = $$(if command -v mpicc >/dev/null && [ "$(MPI)" != 0 ]; then echo mpicc -DWITH_MPI; else echo gcc; fi) \
  -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -Iinclude
LINK = -L$(LIBDIR) -lwholegraph -Wl,-rpath,$(abspath $(LIBDIR)) -ldl -lm -pthread
EXAMPLES := hello shared_table gather_file word_neighbours train_embedding sample_graph
SHARED := $(wildcard examples_c/*.h include/wholememory/*.h)

example-programs: $(EXAMPLES:%=$(BUILD)/%) bench-program
bench-program: $(BUILD)/wholememory_bench

$(EXAMPLES:%=$(BUILD)/%): $(BUILD)/%: examples_c/%.c $(SHARED) Makefile
	@mkdir -p $(BUILD)
	@$(COMPILE) $< -o $@ $(LINK)

# Links nothing of the library: it opens the one it is told to.
$(BUILD)/wholememory_bench: $(wildcard examples_c/*bench*.c) $(SHARED) Makefile
	@mkdir -p $(BUILD)
	@$(COMPILE) $(filter %.c,$^) -o $@ -ldl -lm -pthread
