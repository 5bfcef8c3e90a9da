"""Embeddings: lookups, training against torch's own embedding and optimizers, states, with and without a cache."""

import expect
from expect import LeftOut, Wrong

ROWS, COLUMNS = 97, 20

# Name, parameters of the package, the optimizer of torch with the same meaning.
OPTIMIZERS = (
    ("sgd", {}, lambda torch, it: torch.optim.SGD(it, lr=1)),
    ("sgd", {"weight_decay": 0.02}, lambda torch, it: torch.optim.SGD(it, lr=1, weight_decay=0.02)),
    ("adam", {}, lambda torch, it: torch.optim.Adam(it, lr=1)),
    ("adam", {"weight_decay": 0.02, "beta1": 0.8}, lambda torch, it: torch.optim.Adam(it, lr=1, weight_decay=0.02, betas=(0.8, 0.999))),
    ("adam", {"weight_decay": 0.02, "adam_w": 1.0}, lambda torch, it: torch.optim.AdamW(it, lr=1, weight_decay=0.02)),
    ("rmsprop", {"alpha": 0.9}, lambda torch, it: torch.optim.RMSprop(it, lr=1, alpha=0.9)),
    ("adagrad", {}, lambda torch, it: torch.optim.Adagrad(it, lr=1, eps=1e-8)),
)
STATES = {"sgd": [], "adam": ["m", "v", "beta12t"], "rmsprop": ["v"], "adagrad": ["state_sum"]}


def first_values(world):
    return world.values(range(ROWS), range(COLUMNS), world.torch.float16).float() / 64 - 1


def make(world, kind, location, dtype, policy=None, **rest):
    """An embedding that holds `first_values`."""
    if kind == "hierarchy" and not world.ours:
        raise LeftOut("the published library ends the process where rows are scattered to this type")
    torch = world.torch
    made = world.wg.create_embedding(world.comm, kind, location, dtype, [ROWS, COLUMNS], cache_policy=policy, **rest)
    table = made.get_embedding_tensor()
    first, count = table.wmb_tensor.get_local_entry_start(), table.wmb_tensor.get_local_entry_count()
    own = torch.arange(min(first, ROWS), min(first + count, ROWS))
    table.scatter(first_values(world)[own].to(dtype).to(world.device), own.to(world.device))
    world.meet()
    return made


def all_rows(world, made):
    """Every row as the embedding has it, on the CPU."""
    every = world.torch.arange(ROWS)
    rows = made.gather(every.to(world.device))
    world.synchronize()
    return rows.detach().float().cpu()


def drop(world, made, optimizer=None, policy=None):
    world.meet()
    if optimizer is not None:
        world.wg.destroy_wholememory_optimizer(optimizer)
    world.wg.destroy_embedding(made)
    if policy is not None:
        world.wg.destroy_wholememory_cache_policy(policy)
    world.meet()


def lookups(world, kind, location):
    torch = world.torch
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        made = make(world, kind, location, dtype)
        expect.same(tuple(made.get_embedding_tensor().shape), (ROWS, COLUMNS), "the shape of the embedding's tensor")
        ids = world.ids(ROWS, 300, torch.int64)
        wanted = first_values(world).to(dtype)[ids]
        expect.same_rows(made.gather(ids.to(world.device)), wanted, f"rows of {dtype}")
        expect.same_rows(made.gather(ids.to(world.device), force_dtype=torch.float32), wanted.float(), f"rows of {dtype} as float")
        drop(world, made)


def batch(world, rank, turn, everything):
    """Ids and weights of one rank in one step; `everything` names each row at least once."""
    torch = world.torch
    made = torch.Generator().manual_seed(97 * turn + rank)
    ids = torch.randint(0, ROWS, (150,), generator=made)
    if everything:
        ids = torch.cat([torch.arange(ROWS), ids])
    weights = torch.randint(-16, 17, (len(ids), COLUMNS), generator=made).float() / 16
    return ids, weights


def close(got, wanted, bound, what):
    far = ((got - wanted).abs() - bound * (1 + wanted.abs())).max().item()
    if not far <= 0:
        place = tuple(((got - wanted).abs() - bound * (1 + wanted.abs())).flatten().argmax().unsqueeze(0).tolist())
        raise Wrong(f"{what}: element {place[0]} is {got.flatten()[place[0]]}, not {wanted.flatten()[place[0]]}")


def train(world, kind, location, dtype, name, parameters, theirs, bound, policy=None):
    """Three steps; the loss is of second order, so that the rows count as well as the weights."""
    torch = world.torch
    made = make(world, kind, location, dtype, policy)
    optimizer = world.wg.create_wholememory_optimizer(made, name, parameters)
    module = world.wg.WholeMemoryEmbeddingModule(made)
    module.train()
    plain = torch.nn.Embedding(ROWS, COLUMNS)
    with torch.no_grad():
        plain.weight.copy_(first_values(world))
    reference = theirs(torch, [plain.weight])
    # Optimizers with a memory change every row of torch's table in each step, so each row is named in each.
    everything = name != "sgd" or "weight_decay" in parameters
    for turn in range(3):
        lr = 0.05 / (turn + 1)
        ids, weights = batch(world, world.rank, turn, everything)
        rows = module(ids.to(world.device), force_dtype=torch.float32)
        (rows * weights.to(world.device) + 0.25 * rows * rows).sum().backward()
        optimizer.step(lr)
        world.meet()
        reference.zero_grad()
        for rank in range(world.size):
            ids, weights = batch(world, rank, turn, everything)
            rows = plain(ids)
            (rows * weights + 0.25 * rows * rows).sum().backward()
        reference.param_groups[0]["lr"] = lr
        reference.step()
        if dtype != torch.float32:
            with torch.no_grad():
                plain.weight.copy_(plain.weight.to(dtype).float())
        close(all_rows(world, made), plain.weight.detach(), bound, f"{name} {parameters} {dtype} after step {turn + 1}")
        world.meet()
    names = [str(one) for one in made.get_optimizer_state_names()]
    expect.same(names, STATES[name], "the names of the states")
    for one in names:
        shape = tuple(made.get_optimizer_state(one).shape)
        if world.ours or one == "beta12t":
            expect.same(shape, (ROWS, 2 if one == "beta12t" else COLUMNS), f"the shape of {one}")
    drop(world, made, optimizer, policy)


def every_optimizer(world, kind, location):
    for name, parameters, theirs in OPTIMIZERS:
        train(world, kind, location, world.torch.float32, name, parameters, theirs, 2e-5)


def half_tables(world):
    torch = world.torch
    for dtype, bound in ((torch.float16, 5e-3), (torch.bfloat16, 2e-2)):
        for name, parameters, theirs in OPTIMIZERS:
            train(world, "distributed", "cuda", dtype, name, parameters, theirs, bound)


def cached(world, kind, location):
    """Training through a device cache that is far too small, written back and compared with the raw table."""
    torch = world.torch
    if kind == "hierarchy":
        raise LeftOut("there is no cache over this type")
    if world.size > 1 and not world.ours:
        raise LeftOut("with several ranks the published library reaches for memory that is not there, and ends the process")
    for ratio in (0.25, 1.0):
        for name, parameters, theirs in OPTIMIZERS:
            policy = world.wg.create_wholememory_cache_policy(world.comm, memory_type="distributed", memory_location="cuda",
                                                              access_type="readwrite", ratio=ratio)
            train(world, kind, location, torch.float32, name, parameters, theirs, 2e-5, policy)


def cache_written_back(world):
    """After a write-back the raw table has what the cache had; a dropped cache shows what was written under it."""
    torch = world.torch
    policy = world.wg.create_wholememory_cache_policy(world.comm, memory_type="distributed", memory_location="cuda",
                                                      access_type="readwrite", ratio=0.5)
    made = make(world, "distributed", "cpu", torch.float32, policy)
    optimizer = world.wg.create_wholememory_optimizer(made, "sgd", {})
    module = world.wg.WholeMemoryEmbeddingModule(made)
    ids, weights = batch(world, world.rank, 0, True)
    (module(ids.to(world.device)) * weights.to(world.device)).sum().backward()
    optimizer.step(0.5)
    world.meet()
    trained = all_rows(world, made)
    expect.true(not torch.equal(trained, first_values(world)), "a step changed nothing")
    # The package's own methods for these two pass the stream in a way that its function for it does not take.
    stream = world.wg.wholegraph_env.get_stream()
    made.wmb_embedding.writeback_all_cache(stream)
    world.meet()
    every = torch.arange(ROWS).to(world.device)
    raw = made.get_embedding_tensor()
    expect.same_rows(raw.gather(every), trained, "the raw table after a write-back")
    world.meet()
    if world.rank == 0:
        raw_rows = torch.full((ROWS, COLUMNS), 3.0, device=world.device)
    else:
        raw_rows = torch.empty(0, COLUMNS, device=world.device)
    raw.scatter(raw_rows, every[: len(raw_rows)])
    world.meet()
    made.wmb_embedding.drop_all_cache(stream)
    world.meet()
    expect.same_rows(all_rows(world, made), torch.full((ROWS, COLUMNS), 3.0), "rows after the cache was dropped")
    drop(world, made, optimizer, policy)


def saved(world):
    """Table and states go to files and come back into another embedding, which trains on like the first."""
    torch = world.torch
    made, optimizers = [], []
    for _ in range(2):
        made.append(make(world, "distributed", "cuda", torch.float32))
        optimizers.append(world.wg.create_wholememory_optimizer(made[-1], "adam", {}))

    def one_step(embedding, optimizer, turn):
        module = world.wg.WholeMemoryEmbeddingModule(embedding)
        ids, weights = batch(world, world.rank, turn, False)
        (module(ids.to(world.device)) * weights.to(world.device)).sum().backward()
        optimizer.step(0.05)
        world.meet()

    one_step(made[0], optimizers[0], 0)
    expect.true(not torch.equal(all_rows(world, made[0]), first_values(world)), "a step changed nothing")
    prefix = f"{world.folder}/embedding"
    made[0].save(prefix)
    world.meet()
    made[1].load(prefix)
    world.meet()
    expect.same_rows(all_rows(world, made[1]), all_rows(world, made[0]), "rows after save and load")
    for embedding, optimizer in zip(made, optimizers):
        one_step(embedding, optimizer, 1)
    expect.same_rows(all_rows(world, made[1]), all_rows(world, made[0]), "rows after one more step each")
    for embedding, optimizer in zip(made, optimizers):
        drop(world, embedding, optimizer)


def round_robin(world):
    """Ids name rows before they are dealt: all of them are read right, and trained."""
    if world.size > 1 and not world.ours:
        raise LeftOut("the published library reads the rows of the own rank only")
    torch = world.torch
    made = world.wg.create_embedding(world.comm, "distributed", "cuda", torch.float32, [ROWS, COLUMNS], round_robin_size=4)
    # The rows go in by training: a table of zeros, one gradient a row.
    table = made.get_embedding_tensor()
    first, count = table.wmb_tensor.get_local_entry_start(), table.wmb_tensor.get_local_entry_count()
    own = torch.arange(first, first + count).to(world.device)
    table.scatter(torch.zeros(count, COLUMNS, device=world.device), own)
    world.meet()
    optimizer = world.wg.create_wholememory_optimizer(made, "sgd", {})
    mine = torch.arange(world.rank, ROWS, world.size)
    rows = world.wg.WholeMemoryEmbeddingModule(made)(mine.to(world.device))
    (rows * -first_values(world)[mine].to(world.device)).sum().backward()
    optimizer.step(1.0)
    world.meet()
    expect.same_rows(all_rows(world, made), first_values(world), "dealt rows")
    drop(world, made, optimizer)


def run(world):
    world.each_kind("lookups", lookups)
    world.each_kind("training", every_optimizer)
    world.check("training tables of 16 bits", half_tables)
    world.each_kind("training through a cache", cached)
    world.check("cache written back", cache_written_back)
    world.check("embedding saved and loaded", saved)
    world.check("round robin", round_robin)
