"""Where packages come from: pip's index, apt's sources, and which of them are not verified.

No host is named here: pip and apt are asked for their own index and sources.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from trainwright.core import runner
from trainwright.core.masking import mask
from trainwright.doctor.machine import Machine, MachineFinding, finding
from trainwright.site.site import load_site
from trainwright.site.uv_settings import index_settings, insecure_hosts, insecure_words

NETWORK_SECONDS = 3
APT_HELPER = Path("/usr/lib/apt/apt-helper")
NO_PLACE = str(Path(os.devnull) / "none")


def check_pip(_: Machine) -> MachineFinding:
    remedy = "pip config set global.index-url URL   # and PIP_CERT=FILE if it has a private certificate"
    if not runner.run([sys.executable, "-I", "-c", "import pip"]).ok:
        return finding("pip index", "warning", f"{sys.executable} has no pip", f"{sys.executable} -m ensurepip")
    # The index alone first: local folders and extra indexes would hide that it is out of reach.
    alone = _ask_pip({"PIP_EXTRA_INDEX_URL": f"file://{NO_PLACE}", "PIP_FIND_LINKS": NO_PLACE})
    if alone.ok:
        return finding("pip index", "ok", "answers")
    trouble = re.search(r"Could not fetch URL .*", f"{alone.stdout}\n{alone.stderr}")
    why = mask(trouble.group(0))[:300] if trouble else alone.tail(1)
    if _ask_pip({}).ok:
        return finding("pip index", "warning", f"only pip's extra sources answer, its index does not: {why}", remedy)
    return finding("pip index", "error", f"does not answer: {why}", remedy)


def _ask_pip(env: Mapping[str, str]) -> runner.Completed:
    options = ["--timeout", str(NETWORK_SECONDS), "--retries", "0", "--disable-pip-version-check", "--no-input"]
    argv = [sys.executable, "-I", "-m", "pip", "-vv", "index", "versions", "pip", *options]
    return runner.run(argv, env=env, timeout=10 * NETWORK_SECONDS)


def check_trust(_: Machine) -> MachineFinding:
    """What locks and builds accept without verification."""
    found = []
    if hosts := insecure_hosts(index_settings(())[0]):
        remedy = "pip config unset global.trusted-host; unset PIP_TRUSTED_HOST UV_INSECURE_HOST   # and PIP_CERT=FILE"
        found.append((insecure_words(hosts), remedy))
    if folder := load_site().apt_folder:
        unsigned = f"{folder} is not signed: without a lock, a build installs whatever packages its index lists"
        found.append((unsigned, "./invoke lock ...   # pins each package by its checksum"))
    if not found:
        return finding("trust", "ok", "indexes are verified by certificates, apt packages by signatures")
    return finding("trust", "warning", *("; ".join(parts) for parts in zip(*found, strict=True)))


def check_apt(_: Machine) -> MachineFinding:
    if not APT_HELPER.exists():
        return finding("apt sources", "ok", "not checked: this is neither Debian nor Ubuntu")
    said = runner.run(["apt-get", "indextargets", "--format", "$(BASE_URI)"])
    places = sorted(set(said.stdout.split()))
    if not said.ok or not places:
        return finding("apt sources", "error", f"apt has no sources {said.tail(2)}".strip(), "see sources.list(5)")
    hosts = sorted({urlsplit(place).hostname or "a local folder" for place in places})
    for place in places:
        if place.startswith("http") and (trouble := _fetch(place)):
            return finding(
                "apt sources", "error", f"no answer: {trouble}", "check the mirror and the proxy: apt-get update"
            )
    return finding("apt sources", "ok", f"{len(places)} answer ({', '.join(hosts)})")


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
