"""What this machine lacks for building images, and the command that mends it.

A check looks at one thing, reads only, and gives one finding; a check that can mend what it finds has a fix.
Nothing here calls AWS, and no host is named: pip and apt are asked for their own index and sources.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from trainwright.core import runner
from trainwright.core.errors import EngineError, Failure
from trainwright.core.masking import mask, masked
from trainwright.core.paths import state_dir
from trainwright.engine import engine_packages, setup
from trainwright.engine.engine import Engine, connect, no_client, survey
from trainwright.rehearse import leftovers
from trainwright.site.site import load_site
from trainwright.site.uv_settings import index_settings, insecure_hosts, insecure_words

Say = Callable[[str], None]
Severity = Literal["ok", "warning", "error"]

SCHEMA = "trainwright/doctor/1"
PYTHON = (3, 11)
GB = 1_000_000_000
DISK_ERROR, DISK_WARNING = 5 * GB, 20 * GB  # a CPU image with its cache takes about 3 GB, a CUDA one 15
SESSION_LABEL = "io.trainwright.session"
STOPPED_AGE, RUNNING_AGE = 600.0, 6 * 3600.0  # seconds; younger ones may belong to a command that is at work
CONTEXT_AGE = 14 * 86_400.0
NETWORK_SECONDS = 3
APT_HELPER = Path("/usr/lib/apt/apt-helper")
CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE")
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")
NO_PLACE = str(Path(os.devnull) / "none")


@dataclass(frozen=True)
class Finding:
    """What a check found; ``remedy`` is a command line where there is one."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Check:
    """One thing to look at; ``fix`` mends it, saying each step before it does it."""

    name: str
    run: Callable[[Machine], Finding]
    fix: Callable[[Machine, Say], None] | None = None


class Machine:
    """What several checks look at; asked once, at the first need.

    Args:
        registries: the registries that the site names for base images.
    """

    def __init__(self, registries: Sequence[str] = ()) -> None:
        self.registries = tuple(registries)

    @cached_property
    def engine(self) -> Engine | EngineError:
        """The engine that answers, or why none does. Nothing is set up."""
        try:
            return connect(setup=False)
        except EngineError as error:
            return error


def examine(machine: Machine | None = None) -> list[Finding]:
    """Run every check, in order; a check that fails itself is an error of its own."""
    looked_at = machine or Machine()
    return [_run(check, looked_at) for check in CHECKS]


def mend(findings: Sequence[Finding], say: Say, machine: Machine | None = None) -> list[Finding]:
    """Mend what can be mended and look again.

    Args:
        findings: what :func:`examine` gave.
        say: is told each step before it is done.

    Returns:
        The findings as they are now, in the same order; a fix that failed is told in its check's finding.
    """
    registries = machine.registries if machine else ()
    known = {check.name: check for check in CHECKS}
    failed: dict[str, Finding] = {}
    for finding in findings:
        check = known[finding.check]
        if finding.severity == "ok" or check.fix is None:
            continue
        try:
            check.fix(Machine(registries), say)
        except Failure as error:
            failed[check.name] = Finding(check.name, finding.severity, f"not mended: {error.message}", error.remedy)
    # All of them again: the disk, for one, can be looked at only once the engine answers.
    now = Machine(registries)
    return [failed.get(finding.check) or _run(known[finding.check], now) for finding in findings]


def report_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The document of ``doctor --json``."""
    return {"schema": SCHEMA, "findings": [masked(vars(finding)) for finding in findings]}


def run_doctor(*, fix: bool, say: Say, registries: Sequence[str] = ()) -> dict[str, Any]:
    """Examine this machine, mend it where ``fix`` is set, and give the document of the findings."""
    machine = Machine(registries)
    findings = examine(machine)
    return report_json(mend(findings, say, machine) if fix else findings)


def _run(check: Check, machine: Machine) -> Finding:
    try:
        return check.run(machine)
    except Failure as error:
        return Finding(check.name, "error", error.message, error.remedy)
    except OSError as error:
        return Finding(check.name, "error", f"could not be looked at: {error}")


def _python(_: Machine) -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON:
        wanted = ".".join(map(str, PYTHON))
        remedy = f"rm -rf .venv && TRAINWRIGHT_PYTHON=python{wanted} ./invoke --list"
        return Finding("python", "error", f"{version} ({sys.executable}) is older than {wanted}", remedy)
    return Finding("python", "ok", f"{version} ({sys.executable})")


def _client(_: Machine) -> Finding:
    able, passed = survey()
    if not able:
        raise no_client(passed)
    chosen = able[0]
    notes = [f"passed over {one.path}: {one.why}" for one in passed]
    how = "buildx" if chosen.buildkit == "buildx" else "BuildKit built in"
    return Finding("client", "ok", "; ".join([f"{chosen.path} {chosen.version} ({how})", *notes]))


def _engine(machine: Machine) -> Finding:
    engine = machine.engine
    if isinstance(engine, EngineError):
        if engine.details.get("state") != "denied":
            raise engine
        warning = "who is in the group docker is root here, as a container can mount every file of this machine"
        return Finding("engine", "error", f"{engine.message}; {warning}", engine.remedy)
    gpus = "with GPUs" if engine.gpus else "no GPU runtime"
    return Finding("engine", "ok", f"version {engine.server_version} at {engine.endpoint}, {gpus}")


def _mend_engine(_: Machine, say: Say) -> None:
    connect(say=say)


def _disk(machine: Machine) -> Finding:
    engine = machine.engine
    if isinstance(engine, EngineError):
        return Finding("disk", "warning", "not looked at: no engine answers", "./invoke doctor --fix")
    root = Path(engine.data_root or "/var/lib/docker")
    if not engine.local or not root.exists():
        return Finding("disk", "ok", f"not looked at: the engine's disk is not this machine's ({engine.endpoint})")
    free = shutil.disk_usage(root).free
    message = f"{free / GB:.1f} GB free at {root}"
    remedy = f"{engine.client.path} system df; {engine.client.path} builder prune"
    if free < DISK_ERROR:
        return Finding("disk", "error", f"{message}; an image needs at least {DISK_ERROR // GB} GB", remedy)
    if free < DISK_WARNING:
        return Finding("disk", "warning", f"{message}; a CUDA image may need {DISK_WARNING // GB} GB", remedy)
    return Finding("disk", "ok", message)


def _base(machine: Machine) -> Finding:
    if maker := shutil.which("mmdebstrap"):
        return Finding("base images", "ok", f"made from Debian's packages by {maker}")
    mirrors = () if isinstance(machine.engine, EngineError) else machine.engine.mirrors
    if registries := [*machine.registries, *mirrors]:
        return Finding("base images", "ok", f"from {', '.join(registries)}")
    message = "no mmdebstrap and no registry mirror: only bases that the engine can pull can be used"
    return Finding("base images", "warning", message, engine_packages.commands("mmdebstrap"))


def _mend_base(_: Machine, say: Say) -> None:
    setup.ensure_tool("mmdebstrap", say)


def _pip(_: Machine) -> Finding:
    remedy = "pip config set global.index-url URL   # and PIP_CERT=FILE where it has a private certificate"
    if not runner.run([sys.executable, "-I", "-c", "import pip"]).ok:
        return Finding("pip index", "warning", f"{sys.executable} has no pip to ask", f"{sys.executable} -m ensurepip")
    # The index alone first: local folders and extra indexes would hide that it is out of reach.
    alone = _ask_pip({"PIP_EXTRA_INDEX_URL": f"file://{NO_PLACE}", "PIP_FIND_LINKS": NO_PLACE})
    if alone.ok:
        return Finding("pip index", "ok", "answers")
    trouble = re.search(r"Could not fetch URL .*", f"{alone.stdout}\n{alone.stderr}")
    why = mask(trouble.group(0))[:300] if trouble else alone.tail(1)
    if _ask_pip({}).ok:
        return Finding("pip index", "warning", f"only pip's extra sources answer, its index does not: {why}", remedy)
    return Finding("pip index", "error", f"does not answer: {why}", remedy)


def _trust(_: Machine) -> Finding:
    """What locks and builds take from whoever answers."""
    found = []
    if hosts := insecure_hosts(index_settings(())[0]):
        remedy = "pip config unset global.trusted-host; unset PIP_TRUSTED_HOST UV_INSECURE_HOST   # and PIP_CERT=FILE"
        found.append((insecure_words(hosts), remedy))
    if folder := load_site().apt_folder:
        unsigned = f"{folder} has no signature: a build without a lock takes whatever packages its own index names"
        found.append((unsigned, "./invoke lock ...   # holds each package to a checksum"))
    if not found:
        return Finding("trust", "ok", "indexes by their certificates, packages of apt by their signatures")
    return Finding("trust", "warning", *("; ".join(parts) for parts in zip(*found, strict=True)))


def _ask_pip(env: Mapping[str, str]) -> runner.Completed:
    options = ["--timeout", str(NETWORK_SECONDS), "--retries", "0", "--disable-pip-version-check", "--no-input"]
    argv = [sys.executable, "-I", "-m", "pip", "-vv", "index", "versions", "pip", *options]
    return runner.run(argv, env=env, timeout=10 * NETWORK_SECONDS)


def _apt(_: Machine) -> Finding:
    if not APT_HELPER.exists():
        return Finding("apt sources", "ok", "not looked at: this is neither Debian nor Ubuntu")
    said = runner.run(["apt-get", "indextargets", "--format", "$(BASE_URI)"])
    places = sorted(set(said.stdout.split()))
    if not said.ok or not places:
        return Finding("apt sources", "error", f"apt has no sources {said.tail(2)}".strip(), "see sources.list(5)")
    hosts = sorted({urlsplit(place).hostname or "a local folder" for place in places})
    for place in places:
        if place.startswith("http") and (trouble := _fetch(place)):
            return Finding(
                "apt sources", "error", f"no answer: {trouble}", "check the mirror and the proxy: apt-get update"
            )
    return Finding("apt sources", "ok", f"{len(places)} answer ({', '.join(hosts)})")


def _fetch(place: str) -> str:
    """Fetch the signed index of an apt source with apt's own proxy, certificates and login; what went wrong."""
    limits = [f"Acquire::{kind}::Timeout={NETWORK_SECONDS}" for kind in ("http", "https")]
    options = [word for limit in (*limits, "Acquire::Retries=0") for word in ("-o", limit)]
    trouble = ""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("InRelease", "Release"):  # some mirrors have the second alone
            argv = [str(APT_HELPER), *options, "download-file", f"{place.rstrip('/')}/{name}", f"{folder}/{name}"]
            done = runner.run(argv, timeout=10 * NETWORK_SECONDS)
            if done.ok:
                return ""
            trouble = next((line for line in done.stderr.splitlines() if line.startswith("E:")), done.tail(1))
    return trouble


def _certificates(_: Machine) -> Finding:
    named = {Path(os.environ[name]): name for name in reversed(CA_VARIABLES) if os.environ.get(name)}
    files = named or {SYSTEM_CA: "the system's bundle"}
    good = []
    for file, origin in files.items():
        severity: Severity = "error" if named else "warning"
        fix = f"unset {origin}, or point it at a bundle of PEM certificates"
        remedy = fix if named else engine_packages.commands("ca-certificates")
        if file.is_dir():
            continue  # a folder of hashed names: OpenSSL reads it at need
        if not file.is_file():
            return Finding("certificates", severity, f"{origin}: {file} does not exist", remedy)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(file)
        except (ssl.SSLError, OSError) as error:
            return Finding("certificates", severity, f"{origin}: {file} holds no certificates ({error})", remedy)
        ends = [ssl.cert_time_to_seconds(str(one["notAfter"])) for one in context.get_ca_certs() if "notAfter" in one]
        valid = sum(end > time.time() for end in ends)
        if not valid:
            return Finding("certificates", severity, f"{origin}: every certificate in {file} is expired", remedy)
        good.append(f"{file} ({valid} valid)")
    return Finding("certificates", "ok", ", ".join(good) or "a folder of certificates")


def _aws(_: Machine) -> Finding:
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    place = f"region {region}" if region else "no region in the environment"
    if origin := _aws_credentials():
        return Finding("aws", "ok", f"credentials in {origin}, {place} (not tried)")
    message = "no AWS credentials: nothing can be pushed to ECR or run on SageMaker; building works without"
    return Finding("aws", "warning", message, "aws configure   # or AWS_PROFILE=NAME")


def _aws_credentials() -> str:
    """Where the AWS SDKs would find credentials, by the order in which they look; empty: nowhere."""
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        return "the environment"
    roles = (
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    )
    for name in roles:
        if os.environ.get(name):
            return name
    profile = os.environ.get("AWS_PROFILE") or "default"
    files = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
    for variable, usual in files.items():
        path = Path(os.environ.get(variable) or usual).expanduser()
        held = configparser.RawConfigParser()
        try:
            held.read(path)
        except (configparser.Error, UnicodeDecodeError):
            continue
        for section in (profile, f"profile {profile}"):
            keys = set(held[section]) if section in held else set()
            if keys & {"aws_access_key_id", "role_arn", "sso_session", "sso_start_url", "credential_process"}:
                return f"{path} (profile {profile})"
    return ""


def _leftovers(machine: Machine) -> Finding:
    commands = list(_stale(machine.engine))
    contexts = list(_stale_contexts())
    rehearsed = [left.kind for left in leftovers.find(_answering(machine))]
    if not commands and not contexts and not rehearsed:
        return Finding("leftovers", "ok", "none")
    kinds = [row[1] for row in commands] + rehearsed
    counts = {kind: kinds.count(kind) for kind in ("container", "network")}
    counts |= {"build context": len(contexts), "rehearsal folder": kinds.count("folder")}
    told = ", ".join(f"{number} {kind}{'s' * (number > 1)}" for kind, number in counts.items() if number)
    return Finding("leftovers", "warning", f"of commands that were cut short: {told}", "./invoke doctor --fix")


def _mend_leftovers(machine: Machine, say: Say) -> None:
    for argv in _stale(machine.engine):
        say(f"removing the {argv[1]} {argv[-1]}")
        runner.run(argv, timeout=60)
    for folder in _stale_contexts():
        say(f"removing the build context {folder.name}")
        shutil.rmtree(folder, ignore_errors=True)
    if (engine := _answering(machine)) is not None:
        for left in leftovers.find(engine):
            say(f"removing the {left.kind} {left.name} of a rehearsal")
            leftovers.clear(engine, [left])


def _answering(machine: Machine) -> Engine | None:
    return None if isinstance(machine.engine, EngineError) else machine.engine


def _stale(engine: Engine | EngineError) -> Iterator[list[str]]:
    """The commands that remove what commands of this project left in the engine, containers first."""
    if isinstance(engine, EngineError):
        return
    docker = engine.client.path
    label = ["--filter", f"label={SESSION_LABEL}", "--format"]
    row = f'{{{{.ID}}}}|{{{{.CreatedAt}}}}|{{{{.Label "{SESSION_LABEL}"}}}}'
    living = set()
    for line in runner.run([docker, "ps", "-a", *label, f"{row}|{{{{.State}}}}"]).stdout.splitlines():
        ident, created, session, state = line.split("|")
        if _age(created) > (RUNNING_AGE if state in ("running", "restarting", "paused") else STOPPED_AGE):
            yield [docker, "container", "rm", "-f", "-v", ident]
        else:
            living.add(session)
    for line in runner.run([docker, "network", "ls", *label, row]).stdout.splitlines():
        ident, created, session = line.split("|")
        if session not in living and _age(created) > STOPPED_AGE:
            yield [docker, "network", "rm", ident]


def _age(created: str) -> float:
    """Seconds since a time as the docker client prints it: ``2026-11-21 06:30:38.893 +0000 UTC``."""
    day, clock, zone = created.split()[:3]
    return time.time() - datetime.strptime(f"{day} {clock[:8]} {zone}", "%Y-%m-%d %H:%M:%S %z").timestamp()


def _stale_contexts() -> Iterator[Path]:
    for folder in sorted((state_dir() / "contexts").glob("*")):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > CONTEXT_AGE:
            yield folder


CHECKS: tuple[Check, ...] = (
    Check("python", _python),
    Check("client", _client),  # the engine's fix sees to its client first
    Check("engine", _engine, _mend_engine),
    Check("disk", _disk),
    Check("base images", _base, _mend_base),
    Check("pip index", _pip),
    Check("apt sources", _apt),
    Check("trust", _trust),
    Check("certificates", _certificates),
    Check("aws", _aws),
    Check("leftovers", _leftovers, _mend_leftovers),
)
