#!/usr/bin/env python3
"""kubectl with a cluster behind it, as far as ``kubernetes/run.sh`` sees one; it is run as a program.

Written from Kubernetes' documents ("Jobs", "Init Containers", "Define Environment Variables", "Termination messages")
and from how kubectl prints ``-o name`` and ``-o jsonpath``. What it does as the real one: a Job gets a name from
``generateName``; its pod starts one init container after the other, each to its end, before the container;
``$(NAME)`` in commands and variables is replaced and ``$$`` is a dollar; what a container writes to
``/dev/termination-log`` is its message; an exit status other than 0 fails the Job (its ``podFailurePolicy``); a pod
can be lost with its node, and another one takes its place, without what was on the first. Containers are shells on
this machine: the paths where volumes are mounted lead into the folder of the pod, their tools are those of ``PATH``,
and they see no variables but their own. The smoke test of an image is noted and not run; it leaves a message.

Environment: ``KUBE_STATE``, the folder of the cluster; ``KUBE_LOST``, the beginning of the name of a Job whose first
pod is lost; ``KUBE_FAILING``, the same of one that fails; ``KUBE_AWAY``, how many questions about a Job have no
answer; ``KUBE_SMOKE``, the message of smoke tests.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import yaml

STATE = Path(os.environ.get("KUBE_STATE", "."))
_REFERENCE = re.compile(r"\$(?:(\$)|\((\w[\w.-]*)\))")


def expanded(text: str, variables: dict[str, str]) -> str:
    """What Kubernetes makes of a command or a value; what names no variable stays as it is."""
    return _REFERENCE.sub(lambda found: "$" if found[1] else variables.get(found[2], found[0]), text)


def main(argv: list[str]) -> int:
    """Answer one command line."""
    words = [word for number, word in enumerate(argv) if word != "--namespace" and argv[number - 1] != "--namespace"]
    with (STATE / "called").open("a") as log:
        log.write(f"{' '.join(words)}\n")
    if words[0] == "create":
        return _create(yaml.safe_load(sys.stdin.read()))
    if words[0] == "get" and words[1].startswith("job/"):
        return _get_job(words[1].removeprefix("job/"), words[-1])
    if words[:2] == ["get", "pods"]:
        return _get_pods(words[words.index("--selector") + 1].removeprefix("job-name="), words[-1])
    if words[0] == "exec":
        return _exec(words[2], words[words.index("--") + 1 :])
    if words[0] == "logs":
        print(_read(words[1].removeprefix("job/")).get("log", ""))
        return 0
    if words[:2] == ["delete", "job"]:
        return 0
    print(f"not known here: {words}", file=sys.stderr)
    return 1


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STATE / f"{name}.json").read_text())
    return found


def _write(name: str, job: dict[str, Any]) -> None:
    (STATE / f"{name}.json").write_text(json.dumps(job))


def _create(manifest: dict[str, Any]) -> int:
    number = len(list(STATE.glob("*.json")))
    name = f"{manifest['metadata']['generateName']}{number:05d}"
    job: dict[str, Any] = {"manifest": manifest, "state": "", "pods": 1, "message": "", "log": ""}
    if manifest["spec"]["template"]["spec"].get("initContainers"):
        job["state"] = "waits"
    else:
        failing = os.environ.get("KUBE_FAILING", "")
        job["state"] = "failed" if failing and name.startswith(failing) else "succeeded"
        job["message"] = os.environ.get("KUBE_SMOKE", '{"of": "a job"}')
    _write(name, job)
    print(f"job.batch/{name}")
    return 0


def _get_job(name: str, output: str) -> int:
    away = STATE / "away"
    left = int(away.read_text()) if away.exists() else int(os.environ.get("KUBE_AWAY", "0"))
    if left:
        away.write_text(str(left - 1))
        print("Unable to connect to the server", file=sys.stderr)
        return 1
    state = _read(name)["state"]
    if output == "name":
        print(f"job.batch/{name}")
    else:
        print({"succeeded": "1/", "failed": "/True"}.get(state, "/"), end="")
    return 0


def _get_pods(name: str, output: str) -> int:
    job = _read(name)
    if "terminated.message" in output:
        print(job["message"], end="\n" if "range" in output else "")
    else:
        waits = "map[startedAt:2026-11-25T02:00:07Z]" if job["state"] == "waits" else ""
        print(f"{name}-pod{job['pods']} {waits}")
    return 0


def _exec(pod: str, command: list[str]) -> int:
    name, _, number = pod.rpartition("-pod")
    job = _read(name)
    assert job["state"] == "waits" and int(number) == job["pods"], "only a container that runs can be entered"
    folder = STATE / pod
    for volume in job["manifest"]["spec"]["template"]["spec"]["volumes"]:
        (folder / volume["name"]).mkdir(parents=True)
    context = job["manifest"]["spec"]["template"]["spec"]["initContainers"][0]
    assert context["name"] == "context"
    data = sys.stdin.buffer.read()
    with tarfile.open(fileobj=io.BytesIO(data)) as whole:
        assert whole.getnames()
    done = _shell(folder, context, command[2], data)
    if done.returncode:
        return done.returncode
    lost = os.environ.get("KUBE_LOST", "")
    if lost and name.startswith(lost) and job["pods"] == 1:
        _write(name, {**job, "pods": 2})
    else:
        _write(name, {**job, **_run(folder, job["manifest"]["spec"]["template"]["spec"])})
    return 0


def _run(folder: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Run the containers of a pod; returns how it ended."""
    log = ""
    for container in [*spec["initContainers"], *spec["containers"]]:
        done = _shell(folder, container, container["command"][2])
        log += done.stdout.decode() + done.stderr.decode()
        if done.returncode:
            return {"state": "failed", "log": log}
    told = folder / "termination-log"
    return {"state": "succeeded", "log": log, "message": told.read_text().strip() if told.exists() else ""}


def _shell(
    folder: Path, container: dict[str, Any], script: str, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """A script in a container."""
    named = {each["name"]: each["value"] for each in container.get("env", ())}
    variables: dict[str, str] = {}
    for name, value in named.items():
        variables[name] = expanded(value or "", variables)
    mounts = {each["mountPath"]: str(folder / each["name"]) for each in container["volumeMounts"]}
    places = {**mounts, "/dev/termination-log": str(folder / "termination-log"), "/tmp": str(folder)}

    def here(text: str) -> str:
        either = "|".join(map(re.escape, places))
        return re.sub(rf"(?<![\w./])({either})(?![\w-])", lambda found: places[found[1]], text)

    own = {name: here(value) for name, value in variables.items()}
    outer = {
        name: os.environ[name]
        for name in ("PATH", "KUBE_STATE", "KUBE_FAILING", "KUBE_WRONG", "CALLED")
        if name in os.environ
    }
    return subprocess.run(
        ["sh", "-c", here(expanded(script, variables))],
        env={**outer, **own},
        cwd=folder,
        input=data,
        capture_output=True,
        check=False,
        timeout=60,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
