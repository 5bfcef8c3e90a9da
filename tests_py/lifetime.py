"""Finalize with live objects, objects collected after it, initialisation again, in one process; the package's own launcher."""

import gc
import os
import subprocess
import sys

import expect


def finalize_with_live_objects(world):
    """Tables, subtensors, views, wrapped pointers and communicators outlive the library, and are then let go."""
    wg, torch = world.wg, world.torch
    alive = [world.wg.split_communicator(world.comm, 0, world.rank)]
    for kind in ("continuous", "chunked", "distributed", "hierarchy"):
        for location in ("cuda", "cpu"):
            if world.comm.support_type_location(kind, location):
                table = world.matrix(kind, location, 300, 8, torch.float32)
                world.fill(table)
                alive += [table, table.get_sub_tensor([-1, 2], [-1, 6])]
    pointer = torch.arange(12, dtype=torch.float32, device=world.device).reshape(3, 4)
    alive.append(wg.wholegraph_env.wrap_torch_tensor(pointer))
    world.meet()
    world.stop()
    alive.clear()
    gc.collect()
    world.start()
    works(world)


def works(world):
    table = world.matrix("distributed", "cuda", 500, 8, world.torch.float32)
    world.fill(table)
    ids = world.ids(500, 64, world.torch.int64)
    expect.same_rows(table.gather(ids.to(world.device)), world.values(ids, range(8), world.torch.float32), "rows after the start")
    world.destroy(table)


def many_starts(world):
    for _ in range(4):
        world.stop()
        world.start()
        works(world)
    expect.raises(RuntimeError, lambda: world.wmb.init(0, world.wmb.WholeMemoryLogLevel.LevWarn), "a second init")


def many_communicators(world):
    """Made and destroyed in turn; descriptors do not pile up."""
    counts = []
    for turn in range(12):
        comm = world.wg.create_group_communicator(world.size, 1)
        comm.barrier()
        world.wg.destroy_communicator(comm)
        counts.append(len(os.listdir("/proc/self/fd")))
    if world.ours:
        # One or two may come and go with connections of torch's.
        expect.true(counts[-1] <= counts[2] + 3, f"open descriptors grow from {counts[2]} to {counts[-1]} in 9 communicators")


def tables_do_not_leak(world):
    """Descriptors and mappings after 30 tables are what they were after the first few."""
    counts = []
    for turn in range(30):
        for kind, location in (("distributed", "cuda"), ("continuous", "cpu")):
            world.destroy(world.matrix(kind, location, 1000, 32, world.torch.float32))
        counts.append((len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines())))
    if world.ours:
        expect.true(counts[-1][0] <= counts[4][0], f"open descriptors grow from {counts[4][0]} to {counts[-1][0]} in 25 tables")
        expect.true(counts[-1][1] <= counts[4][1] + 8, f"mappings grow from {counts[4][1]} to {counts[-1][1]} in 25 tables")


def package_launcher(world):
    """The package starts the ranks itself, after it counted GPUs in a forked child."""
    if world.rank != 0:
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "launched.py")
    done = subprocess.run([sys.executable, script, str(world.size), world.folder], capture_output=True, text=True, timeout=80)
    expect.true(done.returncode == 0, f"it ends with {done.returncode}: {(done.stdout + done.stderr)[-400:]}")
    expect.true(done.stdout.count("rows are right") == world.size, f"it says {done.stdout[-400:]!r}")


def run(world):
    world.check("finalize with live objects", finalize_with_live_objects)
    world.check("many starts", many_starts)
    world.check("communicators made and destroyed", many_communicators)
    world.check("tables made and destroyed", tables_do_not_leak)
    world.check("ranks started by the package", package_launcher)
