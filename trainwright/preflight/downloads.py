"""What a script fetches while it runs: nothing with network isolation, and on each host that needs it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainwright.core.findings import Finding, Rule, Severity
from trainwright.preflight.lockstep import READERS, argument
from trainwright.preflight.saves import saves
from trainwright.script.events import Event
from trainwright.script.paths import LOST, roots
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at
from trainwright.script.values import Value

ISOLATED = Rule(
    code="TW468",
    severity="error",
    title="the job has network isolation, and the script fetches something (a warning if your own image may have it)",
    source="AWS's API reference, CreateTrainingJob: with EnableNetworkIsolation no inbound or outbound calls, except "
    "between the hosts of a job",
    remedy="Pass it as an input channel and read it from SM_CHANNEL_…, put it into the image, or turn isolation off.",
)
ONE_HOST = Rule(
    code="TW469",
    severity="error",
    title="only the first process of the job fetches or writes what every host reads, so the other hosts lack it",
    source="PyTorch's documentation of torch.distributed: rank is that of all processes, and hosts share no disk; "
    "AWS's SMDDP examples download in local rank 0; huggingface/transformers #12421: each host saves",
    remedy="if local_rank == 0: … (the first process of each host), then a barrier; or an input channel.",
)
RULES = (ISOLATED, ONE_HOST)
DownloadKind = Literal["hub", "weights", "data", "address", "command"]


@dataclass(frozen=True)
class Fetch:
    """A call that gets something from outside.

    Attributes:
        event: the call.
        kind: a Hugging Face repository, weights of a library, a data set of a library, an address, a command.
        into: the folder or file that it writes to, if that is named.
    """

    event: Event
    kind: DownloadKind
    into: Value | None = None


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    isolated = code.job is not None and code.job.network_isolation
    if code.incomplete or not (isolated or code.several_hosts):
        return
    fetches = [fetch for event in code.events if not event.detached and (fetch := _fetch(event)) is not None]
    if isolated:
        yield from _isolated(code, fetches)
    if code.several_hosts:
        found = next(_one_host(code, fetches), None) or next(_saved_on_one(code), None)
        yield from [] if found is None else [found]


# ---- what fetches ----------------------------------------------------------------------------------------------------

# A repository of the Hugging Face hub: `name` or `owner/name`, and not `./name`, `/name` or `name.json`.
_REPOSITORY = re.compile(r"^[A-Za-z0-9][\w.-]*(/[\w.-]+)?$")
_HUB = re.compile(r"^(transformers|diffusers|peft|tokenizers|optimum)\.([\w.]+\.)?from_pretrained$")
# Builders of load_dataset that read files.
_OF_FILES = (
    *("arrow", "audiofolder", "csv", "generator", "imagefolder", "json", "pandas", "parquet", "sql", "text"),
    *("videofolder", "webdataset", "xml"),
)
_REPOSITORIES = {
    "datasets.load_dataset": "path",
    "datasets.load_metric": "path",
    "evaluate.load": "path",
    "huggingface_hub.snapshot_download": "repo_id",
    "huggingface_hub.hf_hub_download": "repo_id",
    "sentence_transformers.SentenceTransformer": "model_name_or_path",
}
_ADDRESSES = {
    "urllib.request.urlretrieve": 1,
    "urllib.request.urlopen": None,
    "requests.get": None,
    "wget.download": 1,
    "torch.hub.load_state_dict_from_url": None,
    "torch.hub.download_url_to_file": 1,
}
_COMMANDS = re.compile(r"^(os\.(system|popen)|subprocess\.(run|call|check_call|check_output|Popen|getoutput))$")
_COMMAND = re.compile(
    r"\b(pip3?|conda|mamba|apt|apt-get)\s+install\b|\b(wget|curl)\s|\bgit\s+clone\b|\baws\s+s3\b|\bs5cmd\b"
)
_LOCAL_COMMAND = re.compile(r"--no-index|--find-links|--no-deps|\.whl\b|localhost|127\.0\.0\.1")
_OF_AWS_API = re.compile(
    r"^boto3\.[\w.]*\b(client|resource)\.([\w.]+\.)?"
    r"(download_\w+|upload_\w+|get_\w+|put_\w+|list_\w+|head_\w+|describe_\w+|copy_object|publish|assume_role)$"
)


def _fetch(event: Event) -> Fetch | None:
    """Return what a call fetches; None if it may be nothing."""
    name = event.name
    if _HUB.search(name) or name in _REPOSITORIES:
        given = event.arg(_REPOSITORIES.get(name, "pretrained_model_name_or_path"), 0)
        return Fetch(event, "hub", event.arg("local_dir")) if _remote(event, given) else None
    if name.startswith(("torchvision.datasets.", "torchaudio.datasets.")):
        asked = event.arg("download")
        wanted = asked is not None and (asked.may_be(True) or bool(asked.tags & {"zero:rank", "zero:local"}))
        return Fetch(event, "data", event.arg("root", 0)) if wanted else None
    if re.search(r"(^|\.)keras\.datasets\.\w+\.load_data$|keras\.utils\.get_file$", name):
        return Fetch(event, "data")
    return Fetch(event, "weights") if _weights(event) else _of_address(event)


def _of_address(event: Event) -> Fetch | None:
    """Return what a call fetches from an address, from AWS or by a command; None of another call."""
    if event.name in _ADDRESSES:
        place = _ADDRESSES[event.name]
        address = event.arg("url", 0)
        into = event.arg("filename", place) or event.arg("dst", place) if place is not None else None
        return Fetch(event, "address", into) if address is not None and _address(address) else None
    if _OF_AWS_API.match(event.name):
        return Fetch(event, "address", event.arg("Filename", 2) if event.last == "download_file" else None)
    if _COMMANDS.match(event.name) and event.args:
        given = event.args[0]
        words = [given.single()] if given.items is None else [item.single() for item in given.items]
        text = " ".join(word for word in words if isinstance(word, str))
        return Fetch(event, "command") if _COMMAND.search(text) and not _LOCAL_COMMAND.search(text) else None
    return None


def _remote(event: Event, given: Value | None) -> bool:
    """Return whether what a library of Hugging Face loads is a repository of the hub for certain."""
    texts = given.constants if given is not None else None
    if not texts or any(not isinstance(text, str) or not _REPOSITORY.match(text) for text in texts):
        return False
    there = event.module.path.parent
    local = any(text in _OF_FILES or (there / str(text)).exists() for text in texts)
    offline = event.arg("local_files_only")
    return not (local or "cache_dir" in event.keywords or (offline is not None and offline.single() is not False))


def _weights(event: Event) -> bool:
    """Return whether a library fetches the weights of a model that it makes."""
    asked, weights = event.arg("pretrained", 1 if event.last == "create_model" else 0), event.arg("weights")
    if event.name.startswith("torchvision.models.") or event.name == "timm.create_model":
        named = weights is not None and (isinstance(weights.single(), str) or weights.name.startswith("torchvision."))
        return named or (asked is not None and asked.may_be(True))
    if event.name == "torch.hub.load":
        source = event.arg("source")
        return source is None or source.single() == "github"
    if re.search(r"keras\.applications\.([\w.]+\.)?[A-Z]\w+$", event.name):
        return weights is None or weights.single() == "imagenet"
    return False


def _address(value: Value) -> bool:
    text = value.single()
    remote = isinstance(text, str) and text.startswith(("http://", "https://", "ftp://", "s3://"))
    return remote and not re.search(r"//(localhost|127\.|169\.254\.)", str(text))


# ---- network isolation -----------------------------------------------------------------------------------------------

# Variables that say where, or that, files are there already: huggingface_hub, environment variables; torch.hub.
_CACHES = (
    "HF_HOME|HF_HUB_CACHE|HF_HUB_OFFLINE|HF_DATASETS_OFFLINE|HF_DATASETS_CACHE|HF_EVALUATE_OFFLINE|HF_ENDPOINT|"
    "TRANSFORMERS_OFFLINE|TRANSFORMERS_CACHE|HUGGINGFACE_HUB_CACHE|TORCH_HOME|KERAS_HOME|PIP_NO_INDEX|PIP_FIND_LINKS"
)
# AWS's own images hold no models and no data.
_OF_AWS = re.compile(
    r"^\d{12}\.dkr\.ecr\.[\w.-]+/(pytorch|tensorflow|mxnet|huggingface-\w+)(-trcomp)?-training(-neuronx?)?\b", re.A
)


def _isolated(code: ScriptFacts, fetches: list[Fetch]) -> Iterator[Finding]:
    job = code.job
    assert job is not None
    stock = job.image is None or _OF_AWS.match(job.image) is not None
    told = {*job.environment, *code.launch.environment}
    cached = any(re.fullmatch(_CACHES, name) for name in told) or code.says(f"^({_CACHES})$")
    for fetch in fetches:
        event = fetch.event
        there = fetch.into is not None and bool(roots(fetch.into) - LOST)
        there = (there and fetch.kind == "data") or _made_here(code, fetch)
        if not _certain(event) or (cached and fetch.kind != "address") or there:
            continue
        severity: Severity | None = None if stock or fetch.kind == "address" else "warning"
        yield at(ISOLATED, event, f"`{ast.unparse(event.node)[:60]}`", severity=severity)
        return


def _made_here(code: ScriptFacts, fetch: Fetch) -> bool:
    """Return whether the script writes a folder with the name that may be one of a repository."""
    if fetch.kind != "hub" or not fetch.event.args:
        return False
    texts = set(fetch.event.args[0].constants or ())
    written = [v for e in code.events if e.last.startswith("save") for v in (*e.args, *e.keywords.values())]
    written += [e.keywords["output_dir"] for e in code.events if "output_dir" in e.keywords]
    return any(texts & set(value.constants or ()) for value in written)


def _certain(event: Event) -> bool:
    """Return whether the job makes a call, whatever the rank: no condition, no handled exception, is in the way."""
    decided = all(g.kind in ("one", "host", "others", "world") or g.default is g.side for g in event.guards)
    tried = any(isinstance(outer, ast.Try) and outer.handlers for outer in ancestors(event.module, event.node))
    return decided and not tried and not event.opened


# ---- hosts -----------------------------------------------------------------------------------------------------------


def _one_host(code: ScriptFacts, fetches: list[Fetch]) -> Iterator[Finding]:
    """Report files that the first process of the job fetches to its own disk, and processes of other hosts read."""
    prepared = [Fetch(e, "data", e.arg("dataset_path", 0)) for e in code.ran("save_to_disk", live=True)]
    prepared += [Fetch(e, "data", e.arg("path", 0)) for e in code.ran("extractall", live=True)]
    prepared += [Fetch(e, "data", e.arg("extract_dir", 1)) for e in code.ran("unpack_archive", live=True)]
    prepared += [Fetch(e, "data", e.arg("dst", 1)) for e in code.ran("copytree", live=True)]
    everywhere = [fetch.event for fetch in fetches if not _by_first(fetch)]
    for fetch in (*fetches, *prepared):
        event, into = fetch.event, fetch.into
        where = roots(into)
        if into is None or not _by_first(fetch) or not where or where - LOST or _shared(into):
            continue
        if any(_uses(e, into) for e in everywhere):
            continue
        readers = [e for e in code.events if _uses(e, into) and e.order > event.order and not e.detached]
        readers = [e for e in readers if e.last not in _NO_READERS and not e.under("one")]
        asked = event.arg("download")
        if readers or (asked is not None and "zero:rank" in asked.tags):
            reader = f", and line {readers[0].line} reads it on every host" if readers else ""
            what = f"`{ast.unparse(event.node)[:60]}` in the first process of {code.launch.hosts} hosts{reader}"
            yield at(ONE_HOST, event, what)
            return


def _loads(load: Event, save: Event, path: Value) -> bool:
    """Return whether a call reads what another one wrote: by the same path, or the same expression in the same file."""
    written = argument(save, path)
    if _uses(load, path):
        return True
    if load.module is not save.module or not isinstance(written, ast.Call | ast.JoinedStr):
        return False
    given = zip(load.args, load.node.args, strict=False)
    return any(ast.unparse(node) == ast.unparse(written) and roots(v) == roots(path) for v, node in given)


def _saved_on_one(code: ScriptFacts) -> Iterator[Finding]:
    """Report a model that the first process of the job saves on its own disk, and that every host then loads."""
    loads = [e for e in code.ran(*READERS, live=True) if not e.under("one", "error") and e.off is None]
    loads = [e for e in loads if not any(_LOOKS.search(ast.unparse(guard.node)) for guard in e.guards)]
    for save in saves(code):
        event, path = save.event, save.path
        where = roots(path, code.checkpoints)
        alone = event.under("one") is not None and not event.detached
        if path is None or not alone or not where or where - LOST - {"model"} or _shared(path):
            continue
        again = [e for e in loads if e.order > event.order and _loads(e, event, path) and not event.excludes(e)]
        brought = [e for e in code.events if not e.under("one") and _uses(e, path) and _BRINGS.search(e.last)]
        if again and not brought:
            what = (
                f"`{event.text}` in the first process of {code.launch.hosts} hosts, and line {again[0].line} loads it"
            )
            yield at(ONE_HOST, event, f"{what} on every host")
            return


# What may write a file on the other hosts, or bring it there.
_BRINGS = re.compile(r"save|dump|write|download|fetch|copy|get|pull|receive|sync", re.I)
# What asks whether a file is there, before it is loaded.
_LOOKS = re.compile(r"\b(exists|isfile|isdir|is_file|is_dir|listdir|glob)\(")
_NO_READERS = (
    *("makedirs", "mkdir", "exists", "isdir", "isfile", "print", "info", "join", "rmtree", "save_to_disk"),
    *("extractall", "unpack_archive", "copytree"),
)


def _by_first(fetch: Fetch) -> bool:
    asked = fetch.event.arg("download")
    return fetch.event.under("one") is not None or (asked is not None and "zero:rank" in asked.tags)


def _uses(event: Event, path: Value) -> bool:
    """Return whether a call gets a path, or one below it."""
    text = path.single()
    for value in (*event.args, *event.keywords.values()):
        other = value.single()
        same = isinstance(text, str) and isinstance(other, str) and (other + "/").startswith(text.rstrip("/") + "/")
        if value is path or same:
            return True
    return False


def _shared(path: Value) -> bool:
    """Return whether a path may be on a file system that the hosts share."""
    return any(str(text).startswith(("/fsx", "/efs", "/mnt", "/shared", "/lustre")) for text in path.constants or ())
