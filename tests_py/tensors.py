"""Tensors of every type and location: their descriptions, and DLPack views of their memory."""

import array

import expect
from expect import LeftOut

ROWS, COLUMNS = 1013, 12


def descriptions(world, kind, location):
    wmb = world.wmb
    before = wmb.py_get_wholememory_tensor_count()
    for dtype in world.dtypes_of(kind):
        vector, matrix = world.array(kind, location, ROWS, dtype), world.matrix(kind, location, ROWS, COLUMNS, dtype, stride=16)
        expect.same((vector.dtype, vector.dim(), tuple(vector.shape), tuple(vector.stride()), vector.storage_offset()),
                    (dtype, 1, (ROWS,), (1,), 0), "the vector")
        expect.same((matrix.dtype, matrix.dim(), tuple(matrix.shape), tuple(matrix.stride()), matrix.storage_offset()),
                    (dtype, 2, (ROWS, COLUMNS), (16, 1), 0), "the matrix")
        each = wmb.equal_partition_plan(ROWS, world.size)
        first = min(world.rank * each, ROWS)
        for table in (vector, matrix):
            handle = table.wmb_tensor.get_wholememory_handle()
            expect.same(table.wmb_tensor.get_local_entry_start(), first, "the first row of this rank")
            expect.same(table.wmb_tensor.get_local_entry_count(), min(first + each, ROWS) - first, "the rows of this rank")
            expect.same(table.get_comm().get_size(), world.size, "size of the table's communicator")
            expect.same(handle.get_communicator().get_c_handle(), world.comm.wmb_comm.get_c_handle(), "the table's communicator")
            expect.same((handle.get_memory_type().name, handle.get_memory_location().name),
                        (f"Mt{kind.capitalize()}", {"cuda": "MlDevice", "cpu": "MlHost"}[location]), "type and location")
        expect.same(wmb.py_get_wholememory_tensor_count() - before, 2, "tensors alive")
        world.destroy(vector, matrix)
    expect.same(wmb.py_get_wholememory_tensor_count(), before, "tensors alive in the end")


def subtensors(world, kind, location):
    count = world.wmb.py_get_wholememory_tensor_count
    before = count()
    table = world.matrix(kind, location, ROWS, COLUMNS, world.torch.float32)
    part = table.get_sub_tensor([10, 2], [20, 5])
    deeper = part.get_sub_tensor([1, 1], [-1, -1])
    expect.same((tuple(part.shape), tuple(part.stride()), part.storage_offset()), ((10, 3), (COLUMNS, 1), 122), "the subtensor")
    expect.same((tuple(deeper.shape), tuple(deeper.stride()), deeper.storage_offset()), ((9, 2), (COLUMNS, 1), 135), "its subtensor")
    expect.same(count() - before, 3, "tensors alive")
    for child in (deeper, part):
        world.wg.destroy_wholememory_tensor(child)
    world.destroy(table)
    expect.same(count(), before, "tensors alive in the end")


def own_partition(world, kind, location):
    if kind == "chunked" and world.size > 1 and not world.ours:
        raise LeftOut("the published library addresses the rows of such a table wrongly")
    # Uneven, every rank with at least one row.
    rows = [5 + 7 * rank for rank in range(world.size)]
    # The package hands this to the binding as it is, which takes an array of 8-byte numbers only.
    table = world.matrix(kind, location, sum(rows), 4, world.torch.float32, tensor_entry_partition=array.array("L", rows))
    expect.same((table.wmb_tensor.get_local_entry_start(), table.wmb_tensor.get_local_entry_count()),
                (sum(rows[:world.rank]), rows[world.rank]), "first row and rows of this rank")
    world.fill(table)
    ids = world.torch.arange(sum(rows), device=world.device)
    expect.same_rows(table.gather(ids), world.values(range(sum(rows)), range(4), world.torch.float32), "all rows")
    world.destroy(table)


def local_views(world, kind, location):
    """This rank's part is a tensor on the device that the caller asks for, at one address for both."""
    if not world.gpu and location == "cuda":
        raise LeftOut("without a GPU the package makes no view of it")
    table = world.matrix(kind, location, ROWS, COLUMNS, world.torch.float32)
    world.fill(table)
    views = {}
    for host_view in ((True, False) if location == "cpu" else (False,)):
        if not host_view and not world.gpu:
            continue
        view, first = table.get_local_tensor(host_view=host_view)
        views[host_view] = view
        expect.same(first, table.wmb_tensor.get_local_entry_start(), "the first row of the view")
        expect.same(str(view.device), "cpu" if host_view else world.device, "device of the view")
        rows = range(first, first + table.wmb_tensor.get_local_entry_count())
        expect.same_rows(view, world.values(rows, range(COLUMNS), world.torch.float32), "the view")
    if location == "cuda":
        expect.raises(ValueError, lambda: table.get_local_tensor(host_view=True), "a host view of device memory")
    world.meet()
    if len(views) == 2:
        expect.same(views[True].data_ptr(), views[False].data_ptr(), "the address seen by the GPU")
        views[False].add_(1)
        world.synchronize()
        expect.same_rows(views[True], world.values(rows, range(COLUMNS), world.torch.float32) + 1, "what the GPU wrote, seen by the CPU")
        views[True].mul_(2)
        expect.same_rows(views[False] * 1, (world.values(rows, range(COLUMNS), world.torch.float32) + 1) * 2,
                         "what the CPU wrote, seen by the GPU")
    world.destroy(table)


def global_views(world, kind, location):
    table = world.matrix(kind, location, ROWS, COLUMNS, world.torch.float32)
    if kind in ("distributed", "hierarchy") or (kind == "chunked" and location == "cuda"):
        expect.raises(ValueError, lambda: table.get_global_tensor(host_view=location == "cpu"), "a global view")
        world.destroy(table)
        return
    if not world.gpu and location == "cuda":
        world.destroy(table)
        raise LeftOut("without a GPU the package makes no view of it")
    world.fill(table)
    wanted = world.values(range(ROWS), range(COLUMNS), world.torch.float32)
    for host_view in ((True, False) if location == "cpu" else (False,)):
        if not host_view and not world.gpu:
            continue
        view = table.get_global_tensor(host_view=host_view)
        expect.same(str(view.device), "cpu" if host_view else world.device, "device of the view")
        expect.same_rows(view * 1, wanted, "the global view")
    # Each rank writes one row of the next rank's part; that rank finds it in its own.
    each = world.wmb.equal_partition_plan(ROWS, world.size)
    world.meet()
    view[(world.rank + 1) % world.size * each] = 7.0 + world.rank
    world.meet()
    part, first = world.local(table)
    expect.same_rows(part[0] * 1, world.torch.full((COLUMNS,), 7.0 + (world.rank - 1) % world.size), "the row that the rank before wrote")
    world.destroy(table)


def chunked_views(world, kind, location):
    """Every rank's part as a tensor of its own. Asked of the binding: the package's own function for it is broken."""
    wmb = world.wmb
    where = wmb.WholeMemoryMemoryLocation.MlHost if location == "cpu" else wmb.WholeMemoryMemoryLocation.MlDevice
    table = world.matrix(kind, location, ROWS, COLUMNS, world.torch.float32)
    from_dlpack = world.torch.utils.dlpack.from_dlpack

    def views():
        return table.wmb_tensor.get_all_chunked_tensor(from_dlpack, where, -1 if location == "cpu" else world.gpu_index)

    if kind in ("distributed", "hierarchy"):
        expect.raises(ValueError, views, "views of other ranks' parts")
        world.destroy(table)
        return
    if not world.gpu and location == "cuda":
        world.destroy(table)
        raise LeftOut("without a GPU the package makes no view of it")
    world.fill(table)
    parts = views()
    each = wmb.equal_partition_plan(ROWS, world.size)
    expect.same([len(part) for part in parts], [min(ROWS, (rank + 1) * each) - rank * each for rank in range(world.size)], "rows of the parts")
    expect.same_rows(world.torch.cat([part.cpu() for part in parts]), world.values(range(ROWS), range(COLUMNS), world.torch.float32), "all parts")
    world.destroy(table)


def run(world):
    world.each_kind("descriptions", descriptions)
    world.each_kind("subtensors", subtensors)
    world.each_kind("own partition", own_partition)
    world.each_kind("local views", local_views)
    world.each_kind("global views", global_views)
    world.each_kind("views of all parts", chunked_views)
