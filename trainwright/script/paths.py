"""Where a path leads: to a folder that SageMaker keeps, to its input, or to a place that dies with the job."""

from __future__ import annotations

from collections.abc import Iterable

from trainwright.script.events import Event
from trainwright.script.values import FLOWS, IDENTITY, Value

# SageMaker's container contract: what is below these folders, and what becomes of it.
_FOLDERS = (
    ("/opt/ml/model", "model"),
    *((f"/opt/ml/output/{name}", "output") for name in ("data", "intermediate", "tensors", "tensorboard", "profiler")),
    ("/opt/ml/output/metrics", "output"),
    # Beside these, only the file `failure` is read.
    ("/opt/ml/output", "elsewhere"),
    ("/opt/ml/checkpoints", "checkpoint"),
    ("/opt/ml/input/data", "channel"),
    ("/opt/ml/code", "relative"),
    ("/tmp", "tmp"),
    ("/var/tmp", "tmp"),
    ("/dev/shm", "tmp"),
)
_REMOTE = ("s3://", "gs://", "hdfs://", "http://", "https://", "abfs://", "wandb:", "fsx://")
# Folders that are lost with the container.
LOST = frozenset({"tmp", "relative", "elsewhere"})


def root_of(text: str, checkpoints: str = "/opt/ml/checkpoints") -> str:
    """Return what the beginning of a path means: ``model``, ``tmp``, ``relative`` …; or nothing for an empty text."""
    if text.startswith(_REMOTE):
        return "remote"
    if checkpoints and (text + "/").startswith(checkpoints.rstrip("/") + "/"):
        return "checkpoint"
    for folder, name in _FOLDERS:
        if (text + "/").startswith(folder + "/"):
            return name
    if text.startswith(("/", "~")):
        return "elsewhere"
    return "relative" if text.strip() else ""


def joined_path(parts: list[Value]) -> Value:
    """Return what is known of texts or paths that are joined: the first decides where it leads."""
    if not parts:
        return Value()
    identity = frozenset[str]().union(*(part.tags & IDENTITY for part in parts))
    singles = [part.single() for part in parts]
    if all(isinstance(s, str | int) and not isinstance(s, bool) for s in singles):
        whole = "".join(map(str, singles))
        return Value(tags=identity | (parts[0].tags & {"flag"}), constants=(whole,), sure=all(p.sure for p in parts))
    begin = next((p for p in parts if p.single() != ""), parts[0])
    tags = {tag for tag in begin.tags if tag.startswith("root:")}
    if not tags:
        roots = {root_of(c) for c in begin.constants or () if isinstance(c, str)} - {""}
        tags = {f"root:{root}" for root in roots}
    varied = {"varied"} if len(parts) > 1 and any(part.single() is ... for part in parts[1:]) else set()
    cuda = {"cuda"} if any(isinstance(c, str) and c.startswith("cuda") for c in begin.constants or ()) else set()
    prefix = {"prefix"} if begin.single() is not ... else set()
    flows = frozenset[str]().union(*(part.tags & FLOWS for part in parts))
    kept = (begin.tags & {"flag"}) | (flows & {"grad", "own", "measured", "files", "unequal"})
    return Value(tags=frozenset(tags) | identity | varied | cuda | prefix | kept)


def path_join(parts: list[Value]) -> Value:
    """Return ``os.path.join`` of values: an absolute part starts anew."""
    for index in range(len(parts) - 1, 0, -1):
        text = parts[index].single()
        if isinstance(text, str) and text.startswith("/"):
            return path_join(parts[index:])
    singles = [part.single() for part in parts]
    if singles and all(isinstance(s, str) for s in singles):
        whole = "/".join(str(s).rstrip("/") for s in singles if s)
        identity = frozenset[str]().union(*(part.tags & IDENTITY for part in parts))
        rooted = frozenset(tag for tag in parts[0].tags if tag.startswith("root:") or tag == "flag")
        return Value(tags=identity | rooted, constants=(whole,), sure=all(part.sure for part in parts))
    return joined_path(parts)


def folder(value: Value) -> Value:
    """Return the folder of a path, with what is known of where it leads: "" is that of the job's source."""
    known = [c for c in value.constants or () if isinstance(c, str) and c]
    every = bool(known) and len(known) == len(value.constants or ())
    above = tuple(c.rstrip("/").rpartition("/")[0] for c in known) if every else None
    return Value(tags=value.tags, constants=above, sure=value.sure and every)


def method(event: Event, base: Value, name: str) -> Value | None:
    """Return what a method of a text or a path returns; None for any other method."""
    given = [*event.args, *event.keywords.values()]
    if name == "joinpath":
        return path_join([base, *given])
    if name in ("with_name", "with_suffix") and len(given) == 1:
        path, text = base.single(), given[0].single()
        if isinstance(path, str) and isinstance(text, str) and path:
            above, slash, last = path.rpartition("/")
            last = text if name == "with_name" else last.rpartition(".")[0] + text
            sure = base.sure and given[0].sure
            return Value(tags=base.tags, constants=(f"{above}{slash}{last}",), sure=sure)
    if name in ("format", "with_suffix", "with_name") or (name == "join" and base.constants):
        return joined_path([*given, base] if str(base.single()).startswith("{") else [base, *given])
    return None


def roots(value: Value | None, checkpoints: str = "/opt/ml/checkpoints") -> set[str]:
    """Return where a path may lead; empty if that is not known."""
    if value is None:
        return set()
    found = {tag[5:] for tag in value.tags if tag.startswith("root:")}
    texts: Iterable[object] = value.constants or ()
    known = {root_of(text, checkpoints) for text in texts if isinstance(text, str)} - {""}
    return found or known
