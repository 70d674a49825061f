"""Runs of Kubernetes' Jobs on this machine: a checkout, a cluster that is a folder, a BuildKit that notes its words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema

from tests.doubles import kubectl
from tests.support.in_process import call
from tests.support.kube_manifests import DIGEST, SCHEMA, VALUES, filled
from tests.support.pipeline_source import FRONT_DOOR, made_source
from trainwright.catalog.catalog import load_catalog
from trainwright.pipeline.bake import bake_document, target_name
from trainwright.pipeline.images import choose
from trainwright.site.site import Site

CATALOG = load_catalog()
ROOT = Path(__file__).resolve().parents[2]
FIRST, SECOND = "pytorch-2.14.1-cu130-debian", "pytorch-2.15.0-cu132-debian"
# The container of BuildKit: notes how it is called, and writes the file of its client, with the exporter's keys; or the
# results of a proof.
BUILDCTL = """#!/bin/sh
proof=
for word in "$@"; do case $word in type=local,dest=*) proof=${word#type=local,dest=} ;; esac; done
{ for word in "$@"; do printf '%s\\n' "$word"; done; echo; } > "$KUBE_STATE/buildctl${proof:+-proof}.$JOB"
printf '%s' "$BUILDKITD_FLAGS" > "$KUBE_STATE/flags"
cp "$DOCKER_CONFIG/config.json" "$KUBE_STATE/config.$JOB"
if [ "${KUBE_FAILING:-none}" = "$JOB" ]; then
  echo "error: did not complete" >&2
  exit 1
fi
if [ -n "$proof" ]; then
  mkdir -p "$proof" && head -c 30000 /dev/urandom > "$proof/smoke.xml"
  cp "$proof/smoke.xml" "$KUBE_STATE/smoke.$JOB"
  if [ "${KUBE_WRONG:-none}" = "$JOB" ]; then echo "metis: version should be 6" > "$proof/said"; exit 0; fi
  echo "as planned" > "$proof/said" && : > "$proof/passed"
  exit 0
fi
while [ "$1" != --metadata-file ]; do shift; done
cat > "$2" <<END
{
  "containerimage.config.digest": "sha256:ccc",
  "containerimage.digest": "DIGEST"
}
END
"""


def made_cluster(tmp_path: Path) -> Path:
    """A checkout, and a cluster: the front door makes contexts, and kubectl runs Jobs on this machine."""
    folder = made_source(tmp_path / "source")
    (tmp_path / "cluster").mkdir()
    bake = tmp_path / "bake.json"
    plans = [image.plan for image in choose("pytorch:cpu,pytorch:cu130,pytorch:cu132", CATALOG, Site())]
    of_site = {"pip": "secrets/debian-12/pip", "ca": str(tmp_path / "ca.pem")}
    secrets = {target_name(plan): of_site for plan in plans}
    (tmp_path / "ca.pem").write_text("certificate\n")
    bake.write_text(json.dumps(bake_document(plans, secrets=secrets)))
    (folder / "Dockerfile").write_text(
        "FROM scratch AS base\nRUN a\nFROM base AS metis\nRUN b\nFROM base AS final\nRUN c\n"
    )
    make_contexts = f"""
if [ "$1" = pipeline ]; then
  while [ "$1" != --output ]; do shift; done
  for target in {" ".join(map(target_name, plans))}; do
    mkdir -p "$2/contexts/$target/apt" "$2/contexts/$target/proof" && cp Dockerfile "$2/contexts/$target/"
    echo "plan of $target" > "$2/contexts/$target/proof/plan.json" && : > "$2/contexts/$target/proof/request.json"
  done
  mkdir -p "$2/secrets/debian-12" && echo index > "$2/secrets/debian-12/pip" && cp {bake} "$2/docker-bake.json"
fi
"""
    before, case, rest = FRONT_DOOR.partition('case "$1"')
    (folder / "invoke").write_text(before + make_contexts + case + rest)
    (folder / "bin/kubectl").write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl.__file__} "$@"\n')
    (folder / "bin/buildctl-daemonless.sh").write_text(BUILDCTL.replace("DIGEST", DIGEST))
    (folder / ".venv/bin/python").unlink()  # a link leads out of the environment
    (folder / ".venv/bin/python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for name in ("bin/kubectl", "bin/buildctl-daemonless.sh", ".venv/bin/python"):
        (folder / name).chmod(0o755)
    return folder


def made(source: Path, *words: str) -> dict[str, Any]:
    """The manifests, filled in as a run does it, by file."""
    done = call("pipeline", "--format", "kubernetes", *words, "--json", cwd=source)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert files[0] == "kubernetes/run.sh"
    return {Path(name).name: filled((source / name).read_text()) for name in files[1:]}


def ran(source: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]], list[str]]:
    """A run; the Jobs that were created, each valid, in their order; the calls of kubectl."""
    cluster = source.parent / "cluster"
    running = start(source, **variables)
    try:
        out, error = running.communicate(timeout=120)
    finally:
        end(running)
    done = subprocess.CompletedProcess(running.args, running.returncode, out, error)
    jobs = [json.loads(path.read_text()) for path in sorted(cluster.glob("*.json"), key=lambda path: path.stem[-5:])]
    for job in jobs:
        jsonschema.Draft202012Validator(SCHEMA).validate(job["manifest"])
    called = cluster / "called"
    return done, jobs, called.read_text().splitlines() if called.exists() else []


def start(source: Path, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["sh", "kubernetes/run.sh"],
        cwd=source,
        env=environment(source, **variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(running: subprocess.Popen[str]) -> None:
    """End a run with the shells that it started, as a failed test leaves them."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


def environment(source: Path, **variables: str) -> dict[str, str]:
    own = {"PATH": f"{source}/bin:/usr/bin:/bin", "CALLED": str(source / "called"), "TMPDIR": str(source.parent)}
    own |= {"KUBE_STATE": str(source.parent / "cluster"), "PYTHONPATH": str(ROOT)}
    return {**own, **VALUES, **variables}


def words_of(source: Path, job: str) -> list[str]:
    """How BuildKit's client was called for a Job."""
    return (source.parent / "cluster" / f"buildctl.{job}").read_text().splitlines()[:-1]


def pairs(words: list[str], flag: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == flag]
