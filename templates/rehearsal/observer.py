"""Looks on from inside of a container's Python processes while a job is rehearsed; see docs/rehearse.md.

A line in ``trainwright_rehearsal.pth`` starts it in every Python process before that does anything of its own. It
writes what it sees, one JSON object to a line, into ``facts/<pid>.jsonl`` beside it:

``start``   what the process is
``joined``  it belongs to a world of ranks now, by torch.distributed, MPI or a strategy of tf.distribute
``reduced`` the sum of ``rank + 1`` over all of that world: the ranks reached one another
``reached`` the tasks of a TensorFlow cluster that computed something for its coordinator
``error``   the exception that ended it
``handler`` it has a handler for SIGTERM from here on (only where the rehearsal sends one)
``signal``  that handler was called
``end``     it came to its end

On the signal :data:`STACKS` it writes the stacks of all its threads into ``facts/<pid>.stack``. Whatever goes wrong in
here is swallowed: a job must run as it would without.
"""

import json
import os
import sys
import time

HERE = "/opt/trainwright-rehearsal"
FACTS = HERE + "/facts"
STACKS = 61  # a real-time signal that no library is known to use
KEPT = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "TF_CONFIG", "SM_CURRENT_HOST",
    "SM_NUM_GPUS", "NCCL_SOCKET_IFNAME", "FI_PROVIDER", "PJRT_DEVICE", "XRT_HOST_ORDINAL", "XRT_SHARD_WORLD_SIZE",
)  # fmt: skip
ERROR_CHARACTERS = 6000


def tell(event, **more):
    """Append one event; a single write, so that lines of a fork and its parent do not mix."""
    try:
        more.update(e=event, t=time.time())
        handle = os.open("%s/%d.jsonl" % (FACTS, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(handle, (json.dumps(more, default=str) + "\n").encode("utf-8", "replace"))
        finally:
            os.close(handle)
    except Exception:
        pass


def watch_stacks():
    """Have the stacks written when the rehearsal asks for them."""
    import faulthandler

    name = "%s/%d.stack" % (FACTS, os.getpid())
    faulthandler.register(STACKS, file=open(name, "w"), all_threads=True, chain=False)


def start():
    """Tell what this process is, and see to it that its end is told, too."""
    import _socket
    import atexit

    with open("/proc/self/cmdline", "rb") as file:
        argv = [word.decode("utf-8", "replace") for word in file.read().split(b"\0")[:-1]]
    environment = dict((name, os.environ[name]) for name in KEPT if name in os.environ)
    tell("start", parent=os.getppid(), argv=argv[:40], cwd=os.getcwd(), env=environment, host=_socket.gethostname())
    atexit.register(tell, "end")
    watch_stacks()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forked)
    before = sys.excepthook

    def failed(kind, value, trace):
        import traceback

        text = "".join(traceback.format_exception(kind, value, trace))
        try:
            said = str(value).strip().splitlines()
        except Exception:
            said = []
        line = ": ".join([kind.__name__, *said[:1]])
        tell("error", type=kind.__name__, line=line[:ERROR_CHARACTERS], text=text[-ERROR_CHARACTERS:])
        before(kind, value, trace)

    sys.excepthook = failed
    sys.meta_path.insert(0, Finder())
    if os.path.exists(HERE + "/stop"):
        watch_sigterm()


def forked():
    """A forked child: no start of its own, but stacks of its own."""
    try:
        watch_stacks()
        tell("start", parent=os.getppid(), argv=["(fork)"], cwd="", env={}, host="")
    except Exception:
        pass


def watch_sigterm():
    """Tell of a handler for SIGTERM, and when it is called."""
    import functools
    import signal

    plain = signal.signal

    @functools.wraps(plain)
    def chained(number, handler):
        if number != signal.SIGTERM or not callable(handler):
            return plain(number, handler)

        @functools.wraps(handler)
        def told(*frame):
            tell("signal")
            return handler(*frame)

        result = plain(number, told)
        tell("handler")
        return result

    signal.signal = chained


class Finder(object):
    """Finds the modules of :data:`HOOKS` as the other finders do, and looks at them once they are loaded."""

    def __init__(self):
        self._hooks = dict(HOOKS)

    def find_spec(self, name, path=None, target=None):
        after = self._hooks.pop(name, None)  # once: another finder that asks all of them again must not come here
        if after is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, after)
                return spec
        return None


class Loader(object):
    """A module's own loader, with a look at the module afterwards."""

    def __init__(self, loader, after):
        self._loader = loader
        self._after = after

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        if getattr(module, "__spec__", None) is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        try:
            self._after(module)
        except Exception as wrong:
            tell("unseen", library=module.__name__, why=repr(wrong))


def watch_torch(module):
    """Prove each process group that ``torch.distributed`` makes for all ranks."""
    import functools

    plain = module.init_process_group

    @functools.wraps(plain)
    def init_process_group(*args, **kwargs):
        result = plain(*args, **kwargs)
        try:
            prove_torch(module)
        except Exception as wrong:
            tell("unseen", library="torch", why=repr(wrong))
        return result

    module.init_process_group = init_process_group


def prove_torch(module):
    import torch

    rank, size = module.get_rank(), module.get_world_size()
    tell("joined", library="torch", size=size, rank=rank)
    config = getattr(module, "get_backend_config", module.get_backend)()
    # NCCL would need to know the GPU of this rank, which a script may choose later on: a group over CPUs, then.
    group = None if "gloo" in str(config) or "mpi" in str(config) else module.new_group(backend="gloo")
    value = torch.tensor([rank + 1.0], dtype=torch.float64)
    module.all_reduce(value, group=group) if group is not None else module.all_reduce(value)
    tell("reduced", library="torch", size=size, rank=rank, sum=float(value[0]))


def watch_mpi(module):
    """Prove MPI's world, which the import of ``mpi4py.MPI`` joined."""
    if not module.Is_initialized():
        return
    world = module.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    tell("joined", library="mpi", size=size, rank=rank)
    tell("reduced", library="mpi", size=size, rank=rank, sum=float(world.allreduce(rank + 1)))


def after_init(kind, prove):
    """Prove each object of a class of TensorFlow's once it is made."""
    import functools

    plain = kind.__init__

    @functools.wraps(plain)
    def init(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        try:
            prove(self)
        except Exception as wrong:
            tell("unseen", library="tensorflow", why=repr(wrong))

    kind.__init__ = init


def tasks_of(resolver):
    """The tasks of a TensorFlow cluster that train, and those that keep its variables, as pairs of type and number."""
    cluster = resolver.cluster_spec().as_dict() if resolver is not None else {}
    every = [
        (kind, number) for kind in ("chief", "master", "worker", "ps") for number in range(len(cluster.get(kind, ())))
    ]
    return [task for task in every if task[0] != "ps"], [task for task in every if task[0] == "ps"]


def watch_workers(module):
    """MultiWorkerMirroredStrategy, under both of its names."""
    after_init(module.CollectiveAllReduceStrategy, prove_workers)


def prove_workers(strategy):
    import tensorflow as tf

    resolver = strategy.cluster_resolver
    workers = tasks_of(resolver)[0]
    if not workers:
        return  # no cluster: it trains alone, as it would without the strategy
    rank, size = workers.index((resolver.task_type, resolver.task_id)), len(workers)
    tell("joined", library="tensorflow", size=size, rank=rank)
    if not tf.executing_eagerly():
        return  # a graph of its own could only be run in the script's session
    # Each replica brings its part of the value of its worker, so the sum does not depend on how many GPUs there are.
    part = (rank + 1.0) / len(strategy.extended.worker_devices)
    values = strategy.experimental_distribute_values_from_function(lambda _: tf.constant(part, tf.float64))
    total = strategy.reduce("SUM", values, axis=None)
    tell("reduced", library="tensorflow", size=size, rank=rank, sum=round(float(total), 6))


def watch_servers(module):
    """ParameterServerStrategy: its coordinator alone makes one, and sees the whole cluster."""
    after_init(module.ParameterServerStrategyV2, prove_servers)


def prove_servers(strategy):
    import tensorflow as tf

    # The public property is empty for this strategy (TensorFlow 2.21).
    workers, servers = tasks_of(strategy.cluster_resolver or getattr(strategy, "_cluster_resolver", None))
    if not workers:
        return
    tell("joined", library="tensorflow", size=len(workers), rank=0)
    reached = []
    for kind, number in [task for task in workers if task[0] == "worker"] + servers:
        with tf.device("/job:%s/replica:0/task:%d/device:CPU:0" % (kind, number)):
            value = tf.identity(tf.constant(1.0)) + number
        if float(value.numpy()) == 1.0 + number and "job:%s" % kind in value.device:
            reached.append("%s:%d" % (kind, number))
    tell("reached", library="tensorflow", tasks=reached)


HOOKS = {
    "torch.distributed.distributed_c10d": watch_torch,
    "mpi4py.MPI": watch_mpi,
    "tensorflow.python.distribute.collective_all_reduce_strategy": watch_workers,
    "tensorflow.python.distribute.parameter_server_strategy_v2": watch_servers,
}

try:
    # In a virtual environment Python 3.11 goes through site-packages twice, and through the .pth files in it.
    if not hasattr(sys, "_trainwright_rehearsal"):
        sys._trainwright_rehearsal = True
        start()
except Exception:
    pass
