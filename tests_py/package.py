"""Loads the published package pylibwholegraph over one libwholegraph.so, and adapts it to the machine.

The package expects a GPU for every rank. Two machines it was not made for are adapted to here: ranks that share a GPU
(they meet through gloo, as NCCL refuses them), and the CPU platform of the project's library (what the package asks of
the GPU is given plain memory).
"""

import ctypes
import os
import types


class WrongLibrary(Exception):
    """Another libwholegraph.so than the one to be tested is in the process, or none."""


def mapped_libraries():
    """Real paths of every libwholegraph.so in this process."""
    found = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libwholegraph.so"):
                found.add(os.path.realpath(path))
    return sorted(found)


def load():
    """Returns the package's modules: `wmb` (the binding), `wg` (its torch side), `torch`; `gpus`, the number of GPUs in
    use, 0 on the CPU platform; and `gpus_by_fork`, what the library counts in a forked child before anybody uses CUDA
    here. DROPIN_LIBRARY names the file that must be the library."""
    import torch
    import libwholegraph

    libwholegraph.load_library()
    import pylibwholegraph.binding.wholememory_binding as wmb
    import pylibwholegraph.torch as wg

    wanted = os.path.realpath(os.environ["DROPIN_LIBRARY"])
    if mapped_libraries() != [wanted]:
        raise WrongLibrary(f"the library in the process is {mapped_libraries()}, not {wanted}")
    gpus_by_fork = wmb.fork_get_gpu_count()
    platform = os.environ.get("WHOLEMEMORY_PLATFORM", "auto")
    gpus = 0 if platform == "cpu" else torch.cuda.device_count()
    if gpus == 0 and platform == "cuda":
        raise RuntimeError("WHOLEMEMORY_PLATFORM is cuda, but torch sees no GPU")
    return types.SimpleNamespace(wmb=wmb, wg=wg, torch=torch, gpus=gpus, gpus_by_fork=gpus_by_fork)


def meet_through_gloo(torch):
    """Lets the package's process group be gloo, and carries its broadcasts through host memory."""
    import torch.distributed as dist

    start, broadcast = dist.init_process_group, dist.broadcast

    def init_process_group(backend=None, **rest):
        return start(backend="gloo", **rest)

    def broadcast_by_host(tensor, src, *rest, **more):
        on_host = tensor.cpu()
        broadcast(on_host, src, *rest, **more)
        tensor.copy_(on_host)

    dist.init_process_group, dist.broadcast = init_process_group, broadcast_by_host


def use_plain_memory(torch):
    """Answers what the package asks of torch.cuda without a GPU. Returns the mode under which tensors that it wants on
    the GPU, or page-locked, are plain ones."""
    from torch.overrides import TorchFunctionMode

    class DefaultStream:
        cuda_stream = 0
        _as_parameter_ = ctypes.c_void_p(0)

    torch.cuda.current_stream = lambda device=None: DefaultStream()
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = lambda device=None: None

    def on_gpu(value):
        return isinstance(value, (str, torch.device)) and str(value).startswith("cuda")

    class PlainMemory(TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            kwargs = {name: "cpu" if on_gpu(value) else value for name, value in (kwargs or {}).items()}
            if getattr(function, "__name__", "") == "cuda":
                return args[0]
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
            return function(*["cpu" if on_gpu(value) else value for value in args], **kwargs)

    return PlainMemory()
