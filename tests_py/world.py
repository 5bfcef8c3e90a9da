"""One rank's view of the job: the package, the communicator of all ranks, tables and the values they hold."""

import contextlib
import os

import package
from expect import LeftOut, Wrong

TYPES = ("continuous", "chunked", "distributed", "hierarchy")
LOCATIONS = ("cuda", "cpu")


class World:
    """rank, size    this rank and the number of ranks
    ours             the library is the project's own, not the published one
    gpu              ranks work on GPUs; False on the CPU platform
    folder           a folder that all ranks see
    """

    def __init__(self, rank, size, ports, folder, report):
        loaded = package.load()
        self.wmb, self.wg, self.torch, gpus = loaded.wmb, loaded.wg, loaded.torch, loaded.gpus
        self.rank, self.size, self.folder = rank, size, folder
        self.ours = os.environ["DROPIN_LIB"] == "ours"
        self.gpu = gpus > 0
        self.shared_gpu = 0 < gpus < size
        self.gpu_index = rank % gpus if gpus else 0
        self.mode = contextlib.nullcontext() if self.gpu else package.use_plain_memory(self.torch)
        self.device = f"cuda:{self.gpu_index}" if self.gpu else "cpu"
        if self.shared_gpu or not self.gpu:
            package.meet_through_gloo(self.torch)
        self._ports, self._report = iter(ports), report
        self.gpus_by_fork = loaded.gpus_by_fork
        torch = self.torch
        self.dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float64,
                       torch.int32, torch.int64, torch.int16, torch.int8)

    # ---- the job

    def start(self):
        """Initialises the package and the library anew (collective). A port of its own: the last meeting's may still close."""
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(next(self._ports)),
                          RANK=str(self.rank), WORLD_SIZE=str(self.size))
        self.wg.init_torch_env(self.rank, self.size, self.gpu_index, self.size, wm_log_level="warn")
        self.comm = self.wg.get_global_communicator()

    def stop(self):
        self.synchronize()
        self.comm = None
        self.wg.finalize()

    def synchronize(self):
        if self.gpu:
            self.torch.cuda.synchronize()

    def meet(self):
        """After it every rank sees what the others wrote before it."""
        self.synchronize()
        self.comm.barrier()

    def check(self, name, body, *args):
        """Runs one check and reports it; a failure does not stop those that follow."""
        self._report(check=name, state="begun")
        try:
            body(self, *args)
            state, text = "ok", ""
        except LeftOut as reason:
            state, text = "left out", str(reason)
        except Wrong as wrong:
            state, text = "failed", str(wrong)
        except Exception as error:
            state, text = "failed", f"{type(error).__name__}: {error}"
        self._report(check=name, state=state, text=text)

    def each_kind(self, name, body, *args):
        """The check for every memory type and location that the communicator supports."""
        for kind in TYPES:
            for location in LOCATIONS:
                self.check(f"{name}: {kind} {location}", self._if_supported, kind, location, body, *args)

    @staticmethod
    def _if_supported(world, kind, location, body, *args):
        if not world.comm.support_type_location(kind, location):
            raise LeftOut("the communicator does not support it")
        body(world, kind, location, *args)

    # ---- tables and what they hold

    def dtypes_of(self, kind):
        """The dtypes to try: all, but where each table keeps two NCCL communicators until finalize."""
        if kind == "hierarchy" and not self.ours:
            return (self.torch.float32, self.torch.int64)
        return self.dtypes

    def values(self, rows, columns, dtype):
        """Element [i, j] of the answer is what row rows[i] holds in column columns[j] of every table of this dtype:
        whole numbers that the dtype holds exactly."""
        torch = self.torch
        rows, columns = torch.as_tensor(rows, dtype=torch.int64), torch.as_tensor(columns, dtype=torch.int64)
        mixed = (rows[:, None] * 2654435761 + columns[None, :] * 40503) >> 7
        narrow = dtype in (torch.int8, torch.float16, torch.bfloat16)
        return (mixed % (127 if narrow else 30011)).to(dtype)

    def matrix(self, kind, location, rows, columns, dtype, stride=None, **rest):
        return self.wg.create_wholememory_tensor(self.comm, kind, location, [rows, columns], dtype,
                                                 [stride or columns, 1], **rest)

    def array(self, kind, location, rows, dtype):
        return self.wg.create_wholememory_tensor(self.comm, kind, location, [rows], dtype, [1])

    def local(self, table, host_view=None):
        """This rank's part as a tensor, and its first row. By default seen from where the table is."""
        if host_view is None:
            host_view = self.location(table) == "cpu" if self.gpu else True
        return table.get_local_tensor(host_view=host_view)

    def location(self, table):
        where = table.wmb_tensor.get_wholememory_handle().get_memory_location()
        return "cpu" if where == self.wmb.WholeMemoryMemoryLocation.MlHost else "cuda"

    def fill(self, table):
        """Every rank writes `values` into its part (collective)."""
        columns = table.shape[1] if table.dim() == 2 else 1
        if not self.gpu and self.location(table) == "cuda":
            # No view of it exists here: its rows go in through scatter, each by the rank that holds it.
            first = table.wmb_tensor.get_local_entry_start()
            rows = self.torch.arange(first, first + table.wmb_tensor.get_local_entry_count())
            values = self.values(rows, range(columns), table.dtype)
            table.scatter(values if table.dim() == 2 else values[:, 0], rows)
        else:
            part, first = self.local(table)
            rows = range(first, first + part.shape[0])
            values = self.values(rows, range(columns), table.dtype)
            part.copy_(values if table.dim() == 2 else values[:, 0])
        self.meet()

    def ids(self, rows, count, dtype, salt=0):
        """Row numbers in no order, some of them twice, others on each rank; a CPU tensor."""
        torch = self.torch
        made = torch.Generator().manual_seed(1000 * salt + self.rank)
        return torch.randint(0, rows, (count,), generator=made, dtype=torch.int64).to(dtype)

    def destroy(self, *tables):
        self.meet()
        for table in tables:
            self.wg.destroy_wholememory_tensor(table)
