"""Sampling of a real graph (WordNet) through the package's graph structure: every edge against the files, the choices
against the package's own random numbers; lists without doubles and self loops."""

import array
import contextlib
import os

import expect
from expect import LeftOut

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples_c", "data")
# Gaps between keys that are smaller may be decided by the last bits of a logarithm.
NEAR = 1e-5


class Files:
    """The graph as it stands in the files, and weights: a number above 0 for every edge."""

    def __init__(self, torch):
        def read(name, code):
            values = array.array(code)
            with open(os.path.join(DATA, name), "rb") as file:
                values.frombytes(file.read())
            return values

        self.row_ptr = torch.tensor(read("wordnet.row_ptr.i64", "q"), dtype=torch.int64)
        self.col = torch.tensor(read("wordnet.col.i32", "i"), dtype=torch.int32)
        edges = torch.arange(len(self.col), dtype=torch.int64)
        self.weight = ((edges * 2654435761 >> 9) % 1009 + 1).float() / 32
        self.nodes = len(self.row_ptr) - 1

    def degree(self, node):
        return int(self.row_ptr[node + 1] - self.row_ptr[node])


_files = {}


def files(world):
    if not _files:
        _files["it"] = Files(world.torch)
    return _files["it"]


def shared(world, kind, location, values):
    """The values in memory of all ranks; each rank writes those it holds."""
    table = world.array(kind, location, len(values), values.dtype)
    first = table.wmb_tensor.get_local_entry_start()
    own = world.torch.arange(first, first + table.wmb_tensor.get_local_entry_count())
    table.scatter(values[own].to(world.device), own.to(world.device))
    world.meet()
    return table


def taken_for_gpu_memory(world):
    """A mode under which the package's look at where tensors lie is answered as it wants, on the CPU platform."""
    from torch.overrides import TorchFunctionMode

    if world.gpu:
        return contextlib.nullcontext()

    class OnGpu(TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            if function == world.torch.Tensor.is_cuda.__get__:
                return True
            return function(*args, **(kwargs or {}))

    return OnGpu()


class Graph:
    """The graph in memory of one kind, as the package's structure."""

    def __init__(self, world, kind, location, weighted):
        from pylibwholegraph.torch.graph_structure import GraphStructure

        here = files(world)
        self.world, self.arrays = world, [shared(world, kind, location, here.row_ptr), shared(world, kind, location, here.col)]
        self.structure = GraphStructure()
        self.structure.set_csr_graph(*self.arrays)
        if weighted:
            self.arrays.append(shared(world, kind, location, here.weight))
            self.structure.set_edge_attribute("weight", self.arrays[2])

    def drop(self):
        self.structure = None
        self.world.destroy(*self.arrays)


def centers_of(world, count, salt):
    """Nodes of this rank, the best connected one among them."""
    here = files(world)
    hub = int((here.row_ptr[1:] - here.row_ptr[:-1]).argmax())
    ids = world.ids(here.nodes, count, world.torch.int32, salt=salt)
    ids[count // 2] = hub
    return ids


def check_hop(world, centers, most, offsets, dest, localid, edge):
    """Every neighbour is one of its center's edges, each edge once, as many as there should be."""
    torch, here = world.torch, files(world)
    offsets, dest, localid, edge = (one.cpu() for one in (offsets, dest, localid, edge))
    start, end = here.row_ptr[centers.long()], here.row_ptr[centers.long() + 1]
    taken = end - start if most <= 0 else torch.minimum(end - start, torch.tensor(most))
    expect.same_rows(offsets, torch.cat([torch.zeros(1, dtype=torch.int64), taken.cumsum(0)]).int(), "the offsets")
    expect.same_rows(localid, torch.repeat_interleave(torch.arange(len(centers)), taken).int(), "the centers' places")
    expect.same_rows(dest, here.col[edge], "the neighbours, by their edges")
    of = localid.long()
    expect.true(bool(((edge >= start[of]) & (edge < end[of])).all()), "an edge is not of its center")
    pairs = of * len(here.col) + edge
    expect.same(len(pairs.unique()), len(pairs), "edges that differ within their centers")


def one_hop(world, kind, location, weighted):
    if not world.ours and (kind == "hierarchy" or (weighted and kind == "distributed")):
        raise LeftOut("the published library ends the process")
    graph = Graph(world, kind, location, weighted)
    for turn, most in enumerate((1, 5, 30, 100, 400, -1)):
        centers = centers_of(world, 200 + 37 * world.rank, turn)
        options = dict(random_seed=77 + turn, need_center_local_output=True, need_edge_output=True)
        sample = graph.structure.weighted_sample_without_replacement_one_hop if weighted else graph.structure.unweighted_sample_without_replacement_one_hop
        arguments = (["weight"] if weighted else []) + [centers.to(world.device), most]
        got = sample(*arguments, **options)
        check_hop(world, centers, most, *got)
        if weighted and not world.ours:
            continue  # of two equal calls of the published library now and then some edges differ, and their order
        again = sample(*arguments, **options)
        for one, other in zip(got, again):
            expect.same_rows(other, one.cpu(), "the same sample once more")
    graph.drop()


def no_centers(world, kind, location):
    """The last rank has no centers while others do; then none has."""
    if not world.ours:
        raise LeftOut("the published library fails, and lets others wait")
    graph = Graph(world, kind, location, False)
    for nothing in (world.rank == world.size - 1, True):
        centers = centers_of(world, 50, 3)[:0 if nothing else 50]
        got = graph.structure.unweighted_sample_without_replacement_one_hop(
            centers.to(world.device), 5, random_seed=1, need_center_local_output=True, need_edge_output=True)
        check_hop(world, centers, 5, *got)
    graph.drop()


def layers(world, kind, location):
    """Two layers: edges lead from nodes of the layer before to nodes of the next, and all are in the graph."""
    if not world.ours and kind == "hierarchy":
        raise LeftOut("the published library ends the process")
    torch, here = world.torch, files(world)
    graph = Graph(world, kind, location, False)
    words = centers_of(world, 60 + world.rank, 9).unique()
    counts = [7, 4]
    with taken_for_gpu_memory(world):
        gids, edges, row_ptr, col_ind = graph.structure.multilayer_sample_without_replacement(words.to(world.device), counts)
    world.synchronize()
    expect.same((len(gids), len(edges), len(row_ptr), len(col_ind)), (3, 2, 2, 2), "layers")
    expect.same_rows(gids[2], words, "the nodes asked for")
    for layer in (1, 0):
        # Layer 1 is the first hop.
        before, after = gids[layer + 1].cpu().long(), gids[layer].cpu().long()
        expect.same_rows(after[:len(before)], before, "the nodes of the layer before")
        expect.same(len(after.unique()), len(after), "nodes that differ")
        to, of = edges[layer].cpu().long()
        expect.same_rows(col_ind[layer].cpu().long(), to, "columns of the sampled graph")
        most = counts[1 - layer]
        degree = (here.row_ptr[before + 1] - here.row_ptr[before]).clamp(max=most)
        expect.same_rows(row_ptr[layer].cpu().long(), torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)]), "rows of the sampled graph")
        expect.same_rows(of, torch.repeat_interleave(torch.arange(len(before)), degree), "the nodes that edges come from")
        neighbours = {}
        for a, b in zip(before[of].tolist(), after[to].tolist()):
            if a not in neighbours:
                neighbours[a] = set(here.col[here.row_ptr[a]:here.row_ptr[a + 1]].tolist())
            expect.true(b in neighbours[a], f"there is no edge from {a} to {b}")
        new = after[len(before):]
        expect.true(bool(torch.isin(new, after[to]).all()), "a new node that no edge leads to")
    graph.drop()


def uniform_choice(world, seed, position, most, degree):
    """What the published samplers take of `degree` neighbours, by the package's own numbers; most is at most 32."""
    numbers = world.wg.wholegraph_ops.generate_random_positive_int_cpu
    queue, chosen = list(range(degree)), []
    for x in range(most):
        at = int(numbers(seed, position * 32 + x, 1)[0]) % (degree - x)
        chosen.append(queue[at])
        queue[at] = queue[degree - x - 1]
    return chosen


def weighted_keys(world, seed, position, weights):
    numbers = world.wg.wholegraph_ops.generate_exponential_distribution_negative_float_cpu
    keys = [0.0] * len(weights)
    for t in range(min(128, len(weights))):
        mine = range(t, len(weights), 128)
        for y, value in zip(mine, numbers(seed, position * 128 + t, len(mine))):
            keys[y] = float(value) / float(weights[y])
    return keys


def choices(world):
    here, torch = files(world), world.torch
    import pylibwholegraph.torch.wholegraph_ops as wholegraph_ops
    world.wg.wholegraph_ops = wholegraph_ops
    graph = Graph(world, "continuous", "cpu", True)
    centers = centers_of(world, 25, 4)
    for most in (3, 12):
        for weighted in (False, True):
            seed = 123456789 + most
            if weighted:
                got = graph.structure.weighted_sample_without_replacement_one_hop(
                    "weight", centers.to(world.device), most, random_seed=seed, need_center_local_output=True, need_edge_output=True)
            else:
                got = graph.structure.unweighted_sample_without_replacement_one_hop(
                    centers.to(world.device), most, random_seed=seed, need_center_local_output=True, need_edge_output=True)
            check_hop(world, centers, most, *got)
            offsets, edges = got[0].cpu().tolist(), got[3].cpu()
            for position, center in enumerate(centers.tolist()):
                start, degree = int(here.row_ptr[center]), here.degree(center)
                taken = (edges[offsets[position]:offsets[position + 1]] - start).tolist()
                if degree <= most:
                    expect.same(taken, list(range(degree)), f"all neighbours of center {position}")
                elif not weighted:
                    expect.same(taken, uniform_choice(world, seed, position, most, degree), f"neighbours of center {position} of degree {degree}")
                else:
                    keys = weighted_keys(world, seed, position, here.weight[start:start + degree].tolist())
                    best = sorted(keys, reverse=True)[:most]
                    for x, y in enumerate(taken):
                        expect.true(abs(keys[y] - best[x]) <= NEAR * abs(best[x]), f"choice {x} of center {position} has key {keys[y]}, not {best[x]}")
    graph.drop()


def unique_lists(world):
    from pylibwholegraph.torch.graph_ops import append_unique

    torch = world.torch
    for dtype in (torch.int32, torch.int64):
        for targets, neighbours in ((40, 900), (300, 20)):
            made = torch.Generator().manual_seed(targets + world.rank)
            target = torch.randperm(500, generator=made)[:targets].to(dtype)
            neighbour = torch.randint(0, 500, (neighbours,), generator=made).to(dtype)
            with taken_for_gpu_memory(world):
                unique, place = append_unique(target.to(world.device), neighbour.to(world.device), need_neighbor_raw_to_unique=True)
            expect.same_rows(unique[:targets], target, "the targets")
            expect.same(len(unique), len(torch.cat([target, neighbour]).unique()), "ids in all")
            expect.same_rows(unique.cpu()[place.cpu().long()], neighbour, "neighbours by their places")
            if world.ours:
                seen, order = set(target.tolist()), []
                for one in neighbour.tolist():
                    if one not in seen:
                        seen.add(one)
                        order.append(one)
                expect.same(unique[targets:].cpu().tolist(), order, "new ids in the order of first occurrence")


def self_loops(world):
    from pylibwholegraph.torch.graph_ops import add_csr_self_loop

    torch = world.torch
    row_ptr = torch.tensor([0, 3, 3, 7, 9], dtype=torch.int32)
    col = torch.tensor([2, 0, 3, 1, 2, 3, 1, 0, 0], dtype=torch.int32)
    with taken_for_gpu_memory(world):
        rows, columns = add_csr_self_loop(row_ptr.to(world.device), col.to(world.device))
    expect.same_rows(rows, torch.tensor([0, 4, 5, 10, 13], dtype=torch.int32), "row pointers")
    expect.same_rows(columns, torch.tensor([0, 2, 0, 3, 1, 2, 1, 2, 3, 1, 3, 0, 0], dtype=torch.int32), "columns")


def run(world):
    world.each_kind("sample", one_hop, False)
    world.each_kind("weighted sample", one_hop, True)
    world.each_kind("two layers", layers)
    world.each_kind("no centers", no_centers)
    world.check("choices by the package's random numbers", choices)
    world.check("unique lists", unique_lists)
    world.check("self loops", self_loops)
