"""Gather and scatter through torch, on torch's current stream, and the callbacks that give the library memory."""

import expect
from expect import LeftOut

ROWS = 2111


def same_gather(world, table, ids, columns, force_dtype=None):
    """Gathers and compares with what the rows hold; ids is a CPU tensor."""
    got = table.gather(ids.to(world.device), force_dtype=force_dtype)
    wanted = world.values(ids, range(columns), table.dtype)
    if force_dtype is not None:
        wanted = wanted.to(force_dtype)
    expect.same_rows(got, wanted if table.dim() == 2 else wanted[:, 0], f"rows of {table.dtype} x{columns}")


def gather_every_dtype(world, kind, location):
    for dtype in world.dtypes_of(kind):
        for columns in (1, 7, 32):
            table = world.matrix(kind, location, ROWS, columns, dtype)
            world.fill(table)
            for id_dtype in (world.torch.int32, world.torch.int64):
                same_gather(world, table, world.ids(ROWS, 300 + 41 * world.rank, id_dtype, salt=columns), columns)
            world.destroy(table)
        array = world.array(kind, location, ROWS, dtype)
        world.fill(array)
        same_gather(world, array, world.ids(ROWS, 500, world.torch.int64), 1)
        world.destroy(array)


def gather_converts(world, kind, location):
    torch = world.torch
    floats, wholes = (torch.float32, torch.float16, torch.bfloat16, torch.float64), (torch.int32, torch.int64, torch.int16, torch.int8)
    for family in (floats, wholes):
        for dtype in (one for one in family if one in world.dtypes_of(kind)):
            table = world.matrix(kind, location, ROWS, 24, dtype)
            world.fill(table)
            for wanted in family:
                same_gather(world, table, world.ids(ROWS, 257, torch.int64), 24, force_dtype=wanted)
            world.destroy(table)


def gather_wide(world, kind, location):
    """Rows of 4 KiB with a gap behind each, and more of them than fit any small buffer."""
    table = world.matrix(kind, location, ROWS, 1024, world.torch.float32, stride=1040)
    world.fill(table)
    same_gather(world, table, world.ids(ROWS, 6000, world.torch.int64), 1024)
    world.destroy(table)


def gather_window(world, kind, location):
    """Through a subtensor that is some of the columns."""
    table = world.matrix(kind, location, ROWS, 20, world.torch.float32)
    world.fill(table)
    window = table.get_sub_tensor([-1, 5], [-1, 16])
    ids = world.ids(ROWS, 200, world.torch.int64)
    expect.same_rows(window.gather(ids.to(world.device)), world.values(ids, range(5, 16), world.torch.float32), "columns 5 to 15")
    world.wg.destroy_wholememory_tensor(window)
    world.destroy(table)


def gather_nothing(world, kind, location):
    """The last rank asks for no row while others do; then all ask for none."""
    table = world.matrix(kind, location, ROWS, 8, world.torch.float32)
    world.fill(table)
    for count in (0 if world.rank == world.size - 1 else 100, 0):
        same_gather(world, table, world.ids(ROWS, count, world.torch.int64), 8)
    world.destroy(table)


def scatter(world, kind, location):
    if kind == "hierarchy" and not world.ours:
        raise LeftOut("the published library ends the process")
    torch = world.torch
    for dtype in world.dtypes_of(kind):
        for table, columns in ((world.matrix(kind, location, ROWS, 9, dtype), 9), (world.array(kind, location, ROWS, dtype), 1)):
            world.fill(table)
            # Every row but each third, by the rank that has this remainder; each row once.
            ids = torch.tensor([row for row in range(ROWS) if row % 3 and row % world.size == world.rank])
            ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(world.rank))]
            rows = world.values(ids + 1, range(columns), dtype)
            table.scatter((rows if table.dim() == 2 else rows[:, 0]).to(world.device), ids.to(world.device))
            world.meet()
            every = torch.arange(ROWS)
            wanted = world.values(torch.where(every % 3 == 0, every, every + 1), range(columns), dtype)
            got = table.gather(every.to(world.device))
            expect.same_rows(got, wanted if table.dim() == 2 else wanted[:, 0], f"the table of {dtype} x{columns}")
            world.destroy(table)


def current_stream(world, kind, location):
    """Ids and rows are made by work queued before on the current stream, and the results read by work behind it: right
    only if the operation runs on that very stream, in order."""
    if not world.gpu:
        raise LeftOut("there are no streams here")
    torch = world.torch
    table = world.matrix(kind, location, ROWS, 16, torch.float32)
    world.fill(table)
    ids = world.ids(ROWS, 400, torch.int64)
    on_gpu, place = ids.to(world.device), torch.zeros(400, dtype=torch.int64, device=world.device)
    world.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        expect.same(world.wg.wholegraph_env.get_stream(), stream.cuda_stream, "the stream that the package passes on")
        torch.cuda._sleep(100_000_000)
        place.copy_(on_gpu)
        got = table.gather(place)
        twice = got * 2
    stream.synchronize()
    expect.same_rows(twice, world.values(ids, range(16), torch.float32) * 2, "rows gathered on a side stream")
    if kind != "hierarchy" or world.ours:
        mine = torch.arange(world.rank, ROWS, world.size)
        rows, place = torch.zeros(len(mine), 16, device=world.device), torch.zeros(len(mine), dtype=torch.int64, device=world.device)
        wanted = world.values(mine + 3, range(16), torch.float32)
        rows_ahead, place_ahead = wanted.to(world.device), mine.to(world.device)
        world.meet()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            rows.copy_(rows_ahead)
            place.copy_(place_ahead)
            table.scatter(rows, place)
        stream.synchronize()
        world.comm.barrier()
        every = torch.arange(ROWS)
        expect.same_rows(table.gather(every.to(world.device)), world.values(every + 3, range(16), torch.float32),
                         "the table after a scatter on a side stream")
    world.destroy(table)


def many_in_flight(world, kind, location):
    """Calls back to back without a wait, their scratch memory given back to torch's pool and used again at once."""
    torch = world.torch
    table = world.matrix(kind, location, ROWS, 33, torch.float16)
    world.fill(table)
    ids = [world.ids(ROWS, 700 + 50 * turn, torch.int64, salt=turn) for turn in range(20)]
    queued = [one.to(world.device) for one in ids]
    got = [table.gather(one, force_dtype=torch.float32) for one in queued]
    for one, rows in zip(ids, got):
        expect.same_rows(rows, world.values(one, range(33), torch.float16).float(), "one of 20 gathers")
    world.destroy(table)


def captured(world):
    """A gather in a CUDA graph, replayed with other ids."""
    if not world.gpu:
        raise LeftOut("there are no graphs here")
    torch = world.torch
    kinds = ["continuous"] + (["distributed"] if world.ours and world.size == 1 else [])
    for kind in kinds:
        if not world.comm.support_type_location(kind, "cuda"):
            raise LeftOut("the communicator does not support it")
        table = world.matrix(kind, "cuda", ROWS, 64, torch.float32)
        world.fill(table)
        ids = world.ids(ROWS, 256, torch.int64)
        place = ids.to(world.device)
        table.gather(place)
        world.meet()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = table.gather(place)
        for salt in (1, 2):
            ids = world.ids(ROWS, 256, torch.int64, salt=salt)
            place.copy_(ids)
            graph.replay()
            world.synchronize()
            expect.same_rows(got, world.values(ids, range(64), torch.float32), f"replay {salt} of the gather ({kind})")
        del graph
        world.destroy(table)


def gradient(world):
    """The functor for autograd gives a leaf that takes a gradient."""
    from pylibwholegraph.torch.wholememory_ops import wholememory_gather_forward_functor
    table = world.matrix("distributed", "cuda", ROWS, 8, world.torch.float32)
    world.fill(table)
    ids = world.ids(ROWS, 50, world.torch.int64)
    got = wholememory_gather_forward_functor(table.wmb_tensor, ids.to(world.device), requires_grad=True)
    expect.true(got.requires_grad, "the rows take no gradient")
    (got * 3).sum().backward()
    expect.same_rows(got.grad, world.torch.full((50, 8), 3.0), "the gradient")
    expect.same_rows(got, world.values(ids, range(8), world.torch.float32), "the rows")
    world.destroy(table)


def callbacks(world):
    """Memory of all three kinds through the package's callbacks."""
    torch, env = world.torch, world.wg.wholegraph_env
    for dtype in world.dtypes:
        given = (torch.arange(6) * 2).to(dtype)
        fixed = torch.zeros(5, 6, dtype=dtype, device=world.device)
        outputs = [env.TorchMemoryContext() for _ in range(3)]
        source = given.to(world.device)
        world.wmb.wholememory_env_test_cython_op(
            env.wrap_torch_tensor(source), env.wrap_torch_tensor(fixed), *[one.get_c_context() for one in outputs], 5,
            env.get_wholegraph_env_fns(), env.get_stream())
        world.synchronize()
        wanted = torch.arange(5)[:, None].to(dtype) + given[None, :]
        expect.same_rows(fixed, wanted, f"the output of {dtype}")
        for name, one in zip(("device", "pinned", "host"), outputs):
            made = one.get_tensor()
            expect.same(made.device.type, world.torch.device(world.device).type if name == "device" else "cpu", f"where {name} memory is")
            expect.same_rows(made, wanted, f"the {name} output of {dtype}")
            one.free()


def bad_arguments(world):
    """A wrong call raises; the communicator works on."""
    if not world.ours:
        raise LeftOut("the published library ends the process for some of these")
    torch = world.torch
    table = world.matrix("distributed", "cuda", ROWS, 8, torch.float32)
    world.fill(table)
    ids = world.ids(ROWS, 10, torch.int64).to(world.device)
    expect.raises(RuntimeError, lambda: table.gather(ids, force_dtype=torch.int32), "floats gathered into whole numbers")
    env, rows = world.wg.wholegraph_env, torch.zeros(10, 7, device=world.device)
    # The package itself refuses these rows; a client of the binding gets the library's answer.
    expect.raises(ValueError, lambda: world.wmb.wholememory_scatter_op(
        env.wrap_torch_tensor(rows), env.wrap_torch_tensor(ids), table.wmb_tensor, env.get_wholegraph_env_fns(), env.get_stream()),
        "rows of 7 columns scattered into 8")
    same_gather(world, table, world.ids(ROWS, 10, torch.int64), 8)
    world.destroy(table)


def run(world):
    world.each_kind("gather", gather_every_dtype)
    world.each_kind("gather converts", gather_converts)
    world.each_kind("gather of wide rows", gather_wide)
    world.each_kind("gather through a window", gather_window)
    world.each_kind("gather of nothing", gather_nothing)
    world.each_kind("scatter", scatter)
    world.each_kind("current stream", current_stream)
    world.each_kind("calls in flight", many_in_flight)
    world.check("gather in a CUDA graph", captured)
    world.check("gather with a gradient", gradient)
    world.check("callbacks", callbacks)
    world.check("bad arguments", bad_arguments)
