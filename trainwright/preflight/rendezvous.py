"""A process group that takes its rank from the environment, in a job whose launcher puts none there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at

NOT_SET = Rule(
    code="TW166",
    severity="error",
    title="the script reads a variable that the job's launcher does not set",
    source="PyTorch's documentation of torchrun (RANK, LOCAL_RANK, WORLD_SIZE); Open MPI's of mpirun (OMPI_COMM_…); "
    f"{TOOLKIT}: without a launcher there are only SM_HOSTS and SM_CURRENT_HOST",
    remedy="Use the launcher that sets it (torch_distributed for RANK), or read it with a default.",
)
# Stands for the variables that a script sets by computed names.
COMPUTED = "…"
# Conditions that hold where nothing has joined the processes yet.
_NOT_JOINED = re.compile(r"(not |and |[()]|(\w+\.)*is_(available|initialized)\(\) ?)+", re.ASCII)
# What a library that was not read may do to the environment.
_PREPARES = re.compile(r"env|slurm|discover|(^|_)mpi(_|$)", re.I)


def implied(code: ScriptFacts, names_set: set[str]) -> Iterator[Finding]:
    """Report a process group that takes RANK and WORLD_SIZE from the environment where nothing sets them.

    Args:
        code: the script.
        names_set: the variables that it sets itself.

    Sources: torch/distributed/rendezvous.py: env:// reads what the call does not give; sagemaker-pytorch-training
    3.0.0, ``_set_distributed_environment``: without a launcher there are only MASTER_ADDR and MASTER_PORT.
    """
    event = next((e for e in code.roles("group") if e.name.startswith("torch.distributed.") and not e.detached), None)
    if event is None or code.launcher not in ("process", "mpi") or code.spawns is not None:
        return
    names = {"RANK": 4, "WORLD_SIZE": 3}
    known = {*code.launch.environment, *names_set}
    known |= {name for name, position in names.items() if event.arg(name.lower(), position) is not None}
    missing = [name for name in names if name not in known]
    if not missing or COMPUTED in known or code.torch_xla or code.smp or code.managed:
        return
    if not _by_environment(event) or _may_be_set(code, event) or _survived(code, event):
        return
    what = f"`{ast.unparse(event.node)[:60]}` reads {' and '.join(missing)}"
    if code.launcher == "process":
        remedy = "Give the job the launcher torch_distributed, or create no group in a single process."
        what = f"{what}, but the job starts the script without a launcher"
        yield at(NOT_SET, event, what, remedy=remedy)
        return
    passed = (f'{name.lower()}=int(os.environ["OMPI_COMM_WORLD_{name.split("_")[-1]}"])' for name in names)
    remedy = f"Use the launcher torch_distributed, or pass {', '.join(passed)}."
    yield at(NOT_SET, event, f'{what}, which the launcher "mpi" does not set', remedy=remedy)


def _by_environment(event: Event) -> bool:
    """Return whether a process group certainly meets by env://."""
    method, backend, store = event.arg("init_method", 1), event.arg("backend", 0), event.arg("store", 5)
    if event.opened or store is not None or (backend is not None and backend.single() in ("mpi", "fake")):
        return False
    return method is None or event.last == "init_device_mesh" or method.single() in (None, "env://")


def _may_be_set(code: ScriptFacts, event: Event) -> bool:
    """Return whether the script may know at a call that a launcher has set its variables, or may have set them."""
    if not all(_NOT_JOINED.fullmatch(ast.unparse(guard.node)) for guard in event.guards):
        return True
    before = (e for e in code.events if e.order < event.order and not e.name.startswith(("script.", "torch.", "os.")))
    return any(_PREPARES.search(e.last) for e in before)


def _survived(code: ScriptFacts, event: Event) -> bool:
    """Return whether the script goes on where the call fails: a handler around it neither raises nor exits."""
    places: list[tuple[Module, ast.AST]] = [(event.module, event.node)]
    places += [(c.module, c.node) for function in event.stack for c in code.called(function.name)]
    for module, node in places:
        for outer in ancestors(module, node):
            handlers = outer.handlers if isinstance(outer, ast.Try) else []
            if any("raise" not in (text := ast.unparse(each)) and "exit" not in text for each in handlers):
                return True
    return False
