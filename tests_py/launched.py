"""Ranks started by the package's own multiprocess_run, after GPUs were counted in a forked child: launched.py RANKS FOLDER."""

import sys


def rank_body(rank, size):
    from world import World

    world = World(rank, size, [int(sys.argv[3])], sys.argv[2], lambda **_: None)
    with world.mode:
        world.start()
        table = world.matrix("distributed", "cuda", 400, 8, world.torch.float32)
        world.fill(table)
        ids = world.ids(400, 100, world.torch.int64)
        got = table.gather(ids.to(world.device)).cpu()
        assert world.torch.equal(got, world.values(ids, range(8), world.torch.float32)), "wrong rows"
        world.destroy(table)
        world.stop()
    print("rows are right", flush=True)


if __name__ == "__main__":
    import package
    from ranks import free_ports

    ranks = int(sys.argv[1])
    package.load()
    from pylibwholegraph.utils.multiprocess import multiprocess_run

    sys.argv.append(str(free_ports(1)[0]))
    multiprocess_run(ranks, rank_body)
