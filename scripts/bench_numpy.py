#!/usr/bin/env python3
"""numpy.take and wholememory_gather on the same table, in turn, in one process.

    WHOLEMEMORY_NUM_THREADS=1 scripts/bench_numpy.py --lib target/release/libwholegraph.so

The table is a CONTINUOUS HOST tensor of the library; numpy sees the same memory. Each call gathers the same
random rows into the same buffer; the two take turns, and medians are printed: numpy_gbs= and gather_gbs=,
payload in GB/s. Ends with a message when the two answers differ.
"""
import argparse
import ctypes as c
import statistics
import sys
import time

import numpy as np

FLOAT, INT64 = 1, 6
CONTINUOUS, HOST = 1, 2


class UniqueId(c.Structure):
    _fields_ = [("internal", c.c_char * 128)]


class Description(c.Structure):
    _fields_ = [("sizes", c.c_int64 * 8), ("strides", c.c_int64 * 8), ("storage_offset", c.c_int64), ("dim", c.c_int), ("dtype", c.c_uint)]


def describe(sizes, dtype):
    d = Description(dim=len(sizes), dtype=dtype)
    step = 1
    for i in reversed(range(len(sizes))):
        d.sizes[i], d.strides[i] = sizes[i], step
        step *= sizes[i]
    return d


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        for name in ("wholememory_get_last_error", "wholememory_tensor_get_data_pointer"):
            getattr(self.lib, name).restype = c.c_char_p if name.endswith("error") else c.c_void_p

    def must(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code:
            sys.exit(f"{name} failed with code {code}: {self.lib.wholememory_get_last_error().decode()}")

    def tensor(self, array, dtype):
        t, d = c.c_void_p(), describe(array.shape, dtype)
        self.must("wholememory_make_tensor_from_pointer", c.byref(t), c.c_void_p(array.ctypes.data), c.byref(d))
        return t


def seconds_of(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--lib", required=True)
    a.add_argument("--table-mib", type=int, default=2048)
    a.add_argument("--rows", type=int, default=500_000)
    a.add_argument("--cols", type=int, default=128)
    a.add_argument("--reps", type=int, default=7)
    o = a.parse_args()
    wm = Library(o.lib)
    uid, comm, table = UniqueId(), c.c_void_p(), c.c_void_p()
    wm.must("wholememory_init", 0, 1)
    wm.must("wholememory_create_unique_id", c.byref(uid))
    wm.must("wholememory_create_communicator", c.byref(comm), uid, 0, 1)
    table_rows = o.table_mib * (1 << 20) // (o.cols * 4)
    shape = describe((table_rows, o.cols), FLOAT)
    wm.must("wholememory_create_tensor", c.byref(table), c.byref(shape), comm, CONTINUOUS, HOST, None)
    pointer = wm.lib.wholememory_tensor_get_data_pointer(table)
    values = np.ctypeslib.as_array(c.cast(pointer, c.POINTER(c.c_float)), shape=(table_rows, o.cols))
    values[:] = np.arange(table_rows, dtype=np.float32)[:, None] + np.arange(o.cols, dtype=np.float32)[None, :] / 256

    ids = np.random.default_rng(1).integers(0, table_rows, o.rows)
    fetched, expected = np.empty((o.rows, o.cols), np.float32), np.empty((o.rows, o.cols), np.float32)
    ids_tensor, fetched_tensor = wm.tensor(ids, INT64), wm.tensor(fetched, FLOAT)

    def gather():
        wm.must("wholememory_gather", table, ids_tensor, fetched_tensor, None, None, -1)

    def take():
        np.take(values, ids, axis=0, out=expected, mode="clip")

    fetched.fill(-1)
    gather(), take()
    if not np.array_equal(fetched, expected):
        sys.exit("wholememory_gather and numpy.take differ")
    turns = [(seconds_of(take), seconds_of(gather)) for _ in range(3 + 3 * o.reps)][3:]
    payload = o.rows * o.cols * 4 / 1e9
    print(f"numpy_gbs={payload / statistics.median(t for t, _ in turns):.3f} gather_gbs={payload / statistics.median(g for _, g in turns):.3f}")
    for t in (ids_tensor, fetched_tensor, table):
        wm.must("wholememory_destroy_tensor", t)
    wm.must("wholememory_destroy_communicator", comm)
    wm.must("wholememory_finalize")


main()
