"""Load and store: whole tables, lists of files, windows, round robin; files that cannot be read."""

import os

import expect
from expect import LeftOut

ROWS, COLUMNS = 1013, 12


def path(world, name):
    return os.path.join(world.folder, name)


def parts_of(world, prefix):
    return [f"{prefix}_part_{rank}_of_{world.size}" for rank in range(world.size)]


def same_table(world, table, wanted, what):
    ids = world.torch.arange(len(wanted), device=world.device)
    expect.same_rows(table.gather(ids), wanted, what)


def store_and_load(world, kind, location):
    torch = world.torch
    for dtype, stride in ((torch.float32, COLUMNS), (torch.int8, 16), (torch.float64, 16)):
        table, other = (world.matrix(kind, location, ROWS, COLUMNS, dtype, stride=stride) for _ in range(2))
        world.fill(table)
        prefix = path(world, f"{kind}_{location}_{stride}")
        table.to_file_prefix(prefix)
        wanted = world.values(range(ROWS), range(COLUMNS), dtype)
        if world.rank == 0:
            # The files in rank order are the table, without gaps.
            whole = b"".join(open(name, "rb").read() for name in parts_of(world, prefix))
            stored = torch.frombuffer(bytearray(whole), dtype=dtype).reshape(ROWS, COLUMNS)
            expect.same_rows(stored, wanted, f"what the files of {dtype} hold")
        other.from_file_prefix(prefix)
        same_table(world, other, wanted, f"the table of {dtype} loaded again")
        world.destroy(table, other)


def one_file(world, name, rows, columns, dtype):
    """A file of `values`, written by rank 0 (collective)."""
    name = path(world, name)
    if world.rank == 0:
        world.values(range(rows), range(columns), dtype).numpy().tofile(name)
    world.meet()
    return name


def from_files(world, kind, location):
    """A table as large as its files, of which one holds a part of a row range that belongs to several ranks."""
    torch = world.torch
    name = one_file(world, f"whole_{kind}_{location}", ROWS, COLUMNS, torch.float32)
    table = world.wg.create_wholememory_tensor_from_filelist(world.comm, kind, location, [name], torch.float32, COLUMNS)
    expect.same(tuple(table.shape), (ROWS, COLUMNS), "shape of the table")
    same_table(world, table, world.values(range(ROWS), range(COLUMNS), torch.float32), "the table")
    world.destroy(table)


def window(world):
    """Into some of the columns; the others stay."""
    torch = world.torch
    table = world.matrix("distributed", "cpu", ROWS, COLUMNS, torch.float32)
    world.fill(table)
    name = one_file(world, "window", ROWS, 5, torch.float32)
    some = table.get_sub_tensor([-1, 4], [-1, 9])
    some.from_filelist([name])
    wanted = world.values(range(ROWS), range(COLUMNS), torch.float32)
    wanted[:, 4:9] = world.values(range(ROWS), range(5), torch.float32)
    same_table(world, table, wanted, "the table")
    world.wg.destroy_wholememory_tensor(some)
    world.destroy(table)


def round_robin(world):
    """Blocks of 3 records, dealt to the ranks in turn."""
    torch, size, block, records = world.torch, world.size, 3, 100
    rest = records % (size * block)
    rows = records - rest + min(rest, block) * size
    table = world.matrix("distributed", "cpu", rows, 4, torch.float32)
    name = one_file(world, "records", records, 4, torch.float32)
    table.from_filelist([name], round_robin_size=block)
    world.meet()
    part, first = world.local(table)
    mine = [record for record in range(records) if record // block % size == world.rank]
    expect.same_rows(part[:len(mine)], world.values(mine, range(4), torch.float32), "records of this rank")
    world.destroy(table)


def unreadable(world):
    """A file that is missing, and one of a broken record: an exception on every rank, and the table works on."""
    torch = world.torch
    table = world.matrix("distributed", "cpu", ROWS, COLUMNS, torch.float32)
    world.fill(table)
    expect.raises(ValueError, lambda: table.from_filelist([path(world, "none")]), "loading a file that is not there")
    if world.rank == 0:
        open(path(world, "broken"), "wb").write(bytes(49))
    world.meet()
    expect.raises(ValueError, lambda: table.from_filelist([path(world, "broken")]), "loading a file of 49 bytes")
    same_table(world, table, world.values(range(ROWS), range(COLUMNS), torch.float32), "the table")
    world.destroy(table)


def missing_on_one(world):
    """A file that only the last rank cannot read: every rank hears of it."""
    if not world.ours:
        raise LeftOut("the other ranks of the published library wait for ever")
    torch = world.torch
    table = world.matrix("distributed", "cpu", ROWS, COLUMNS, torch.float32)
    name = one_file(world, "for_all", ROWS, COLUMNS, torch.float32)
    names = [name if world.rank < world.size - 1 else name + "_not"]
    expect.raises(ValueError, lambda: table.from_filelist(names), "loading a file that one rank does not have")
    table.from_filelist([name])
    same_table(world, table, world.values(range(ROWS), range(COLUMNS), torch.float32), "the table")
    world.destroy(table)


def run(world):
    world.each_kind("store and load", store_and_load)
    world.each_kind("table from files", from_files)
    world.check("load into a window", window)
    world.check("load round robin", round_robin)
    world.check("files that cannot be loaded", unreadable)
    world.check("a file missing on one rank", missing_on_one)
