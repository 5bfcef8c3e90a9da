"""Communicators: ranks, groups, capabilities, and the exceptions that the package makes of error codes."""

import expect
from expect import LeftOut
from world import LOCATIONS, TYPES


def ranks(world):
    comm = world.comm
    expect.same((comm.get_rank(), comm.get_size()), (world.rank, world.size), "rank and size")
    expect.true(world.wg.get_global_communicator() is comm, "a second global communicator is made")
    expect.same(comm.distributed_backend, "nccl", "the backend")


def gpu_count(world):
    expect.same(world.gpus_by_fork, world.torch.cuda.device_count(), "the GPU count of the forked child")


def local_groups(world):
    for name, comm, size in (("node", world.wg.get_local_node_communicator(), world.size),
                             ("device", world.wg.get_local_device_communicator(), 1)):
        expect.same((comm.get_rank(), comm.get_size()), (world.rank % size, size), f"rank and size in the {name} communicator")


def split(world):
    # Even and odd ranks apart, in the opposite order.
    colour = world.rank % 2
    members = [rank for rank in reversed(range(world.size)) if rank % 2 == colour]
    part = world.wg.split_communicator(world.comm, colour, world.size - world.rank)
    expect.same((part.get_rank(), part.get_size()), (members.index(world.rank), len(members)), "rank and size after the split")
    table = world.wg.create_wholememory_tensor(part, "distributed", "cuda", [40, 4], world.torch.float32, [4, 1])
    expect.same(table.get_comm().get_size(), len(members), "size of the table's communicator")
    world.wg.destroy_wholememory_tensor(table)
    part.barrier()
    world.wg.destroy_communicator(part)


def groups(world):
    for size, stride in ((1, 1), (world.size, 1)) + (((world.size // 2, 2),) if world.size % 2 == 0 else ()):
        comm = world.wg.create_group_communicator(size, stride)
        place = world.rank // stride % size
        expect.same((comm.get_rank(), comm.get_size()), (place, size), f"rank and size of groups of {size}, stride {stride}")
        comm.barrier()
        world.wg.destroy_communicator(comm)


def clique(world):
    in_clique, first, rank, ranks_in_it, number, cliques = world.comm.get_clique_info()
    if in_clique:
        expect.true(0 <= first <= world.rank and 0 <= rank < ranks_in_it <= world.size,
                    f"the clique is said to begin at rank {first} with {ranks_in_it} ranks, this one being number {rank}")
        expect.true(0 <= number < cliques <= world.size, f"the clique is said to be number {number} of {cliques}")
    elif world.ours:
        # Without a fabric the published library leaves the last two undefined.
        expect.same((number, cliques), (0, 1), "number of the clique, and of cliques")


def capabilities(world):
    """What every machine supports, and answers that are the same on all ranks."""
    comm = world.comm
    answers = [[comm.support_type_location(kind, location) for location in LOCATIONS] for kind in TYPES]
    # A bit for each answer: what a rank says about itself must be what each rank says.
    said = sum(1 << (2 * i + j) for i, row in enumerate(answers) for j, yes in enumerate(row) if yes)
    table = world.array("distributed", "cuda", world.size, world.torch.int64)
    row = world.torch.tensor([world.rank], device=world.device)
    table.scatter(world.torch.tensor([said], device=world.device), row)
    world.meet()
    every = table.gather(world.torch.arange(world.size, device=world.device)).cpu().tolist()
    world.destroy(table)
    expect.same(every, [said] * world.size, "the answers of all ranks")
    for location, yes in zip(LOCATIONS, answers[TYPES.index("distributed")]):
        expect.true(yes, f"DISTRIBUTED {location} is said not to be supported")


def unknown_backend(world):
    if not world.ours:
        raise LeftOut("the published library accepts NVSHMEM and uses NCCL")
    set_backend = world.wg.comm.comm_set_distributed_backend
    expect.raises(NotImplementedError, lambda: set_backend(world.comm, "nvshmem"), "asking for NVSHMEM")
    set_backend(world.comm, "nccl")
    expect.same(world.comm.distributed_backend, "nccl", "the backend")


def initialised_twice(world):
    level = world.wmb.WholeMemoryLogLevel.LevWarn
    expect.raises(RuntimeError, lambda: world.wmb.init(0, level), "a second init")


def partition_plan(world):
    for entries, parts, each in ((0, 4, 0), (1, 4, 1), (5, 4, 2), (8, 4, 2), (9, 4, 3)):
        expect.same(world.wmb.equal_partition_plan(entries, parts), each, f"entries a rank of {entries} over {parts}")


def rmm_flag(world):
    try:
        world.wg.set_rmm_enabled(True)
        expect.same(world.wg.is_rmm_enabled(), True, "the flag")
    finally:
        world.wg.set_rmm_enabled(False)
    expect.same(world.wg.is_rmm_enabled(), False, "the flag")


def run(world):
    world.check("ranks of the global communicator", ranks)
    world.check("GPUs counted by a forked child", gpu_count)
    world.check("node and device communicators", local_groups)
    world.check("split", split)
    world.check("groups", groups)
    world.check("clique info", clique)
    world.check("capabilities", capabilities)
    world.check("NVSHMEM", unknown_backend)
    world.check("init twice", initialised_twice)
    world.check("partition plan", partition_plan)
    world.check("RMM flag", rmm_flag)
