"""GitLab CI/CD as far as a pipeline with shell jobs sees it: which jobs there are, their variables, order and scripts.

Written from GitLab's documents ("CI/CD YAML syntax reference", "Where variables can be used", "CI/CD variable
precedence", "Specify when jobs run with rules") and from how the runner's shell works. What it does as the real one:
``extends`` merges tables and replaces lists; a job exists if its first rule that applies does not say ``never``; what
needs a job that does not exist is refused unless the need is ``optional``; variables of the project stand above those
of the file, and ``$NAME`` in a variable's value is expanded, ``$$`` is a dollar; a job starts when those that it
needs have ended well, or may fail; ``before_script`` and ``script`` run in one bash that ends with the first failure,
``after_script`` in another, whose failure changes nothing; tokens are in their variables; artifacts are the files
that match, ``always`` also of a failed job; a job of the stage ``.post`` that needs none comes after all others, if
none of them failed that may not. What it does not know: ``image`` and ``services`` (the runner is a shell), other
stages, matrices, ``retry``.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Keywords of the top level; every other key there is a job.
KEYWORDS = frozenset({"default", "include", "stages", "variables", "workflow", "spec"})
PREDEFINED = {
    "CI": "true",
    "GITLAB_CI": "true",
    "CI_COMMIT_SHA": "0" * 40,
    "CI_PROJECT_URL": "https://gitlab.example.com/team/images",
    "CI_PIPELINE_CREATED_AT": "2026-11-25T02:00:07Z",
}
_RULE = re.compile(r"\s*(\$\w+|\"[^\"]*\"|null|==|!=|&&|\|\||[()])")
_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")


class InvalidPipeline(Exception):
    """GitLab would not create the pipeline."""


@dataclass(frozen=True)
class RanJob:
    """A job that exists.

    Attributes:
        outcome: ``success``, ``failed`` or ``skipped``.
        allowed: whether it may fail.
        group: the resource group; of two jobs with one, GitLab runs one after the other.
        log: what its scripts said.
        artifacts: the files that are kept.
        junit: those that are read as test reports.
    """

    outcome: str
    allowed: bool = False
    group: str = ""
    log: str = ""
    artifacts: tuple[str, ...] = ()
    junit: tuple[str, ...] = ()


def merged(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A job with what it extends."""
    job = dict(document[name])
    parent = job.pop("extends", None)
    return _over(merged(document, parent), job) if parent else job


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    made = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = _over(made[key], value) if both else value
    return made


def run_pipeline(
    source: Path,
    document: Mapping[str, Any],
    *,
    started_by: str,
    project: Mapping[str, str],
    environment: Mapping[str, str],
    timeout: float = 60,
) -> dict[str, RanJob]:
    """Run a pipeline in a source folder, one job after the other; each starts without what the last has left.

    Args:
        source: a checkout, in which all jobs work.
        document: ``.gitlab-ci.yml`` as data.
        started_by: ``CI_PIPELINE_SOURCE``.
        project: variables of the project.
        environment: what the runner has set, ``PATH`` above all.
        timeout: seconds for the script of a job.

    Returns:
        The jobs that exist, by name; none if no pipeline is created.

    Raises:
        InvalidPipeline: a job needs one that does not exist.
    """
    jobs: dict[str, dict[str, Any]] = {}
    variables: dict[str, dict[str, str]] = {}
    for number, name in enumerate(name for name in document if name not in KEYWORDS and name[0] != "."):
        job = merged(document, name)
        own = {**PREDEFINED, "CI_PIPELINE_SOURCE": started_by, "CI_PROJECT_DIR": str(source)}
        own |= {"CI_JOB_ID": str(4711 + number), "CI_JOB_NAME": name}
        values = _expanded({**job.get("variables", {}), **own, **project})
        if _exists(job.get("rules"), values):
            jobs[name], variables[name] = job, values
    for name, job in jobs.items():
        for need in job.get("needs", ()):
            if need["job"] not in jobs and not need.get("optional"):
                raise InvalidPipeline(f"{name} needs {need['job']}, which does not exist")
    ran: dict[str, RanJob] = {}
    while len(ran) < len(jobs):
        before = len(ran)
        for name, job in jobs.items():
            needs = [need["job"] for need in job.get("needs", ()) if need["job"] in jobs]
            if job.get("stage") == ".post" and "needs" not in job:
                needs = [other for other in jobs if jobs[other].get("stage") != ".post"]
            if name in ran or any(each not in ran for each in needs):
                continue
            ready = all(ran[each].outcome == "success" or ran[each].allowed for each in needs)
            ran[name] = _run(source, job, {**environment, **variables[name]}, timeout) if ready else RanJob("skipped")
        if len(ran) == before:
            raise InvalidPipeline(f"these need each other: {sorted(set(jobs) - set(ran))}")
    return ran


def _run(source: Path, job: Mapping[str, Any], variables: Mapping[str, str], timeout: float) -> RanJob:
    tokens = {name: f"token-for-{each['aud']}" for name, each in job.get("id_tokens", {}).items()}
    env = {**variables, **tokens}
    done = _shell([*job.get("before_script", ()), *job["script"]], source, env, timeout)
    after = _shell(job.get("after_script", ()), source, env, timeout)
    kept = job.get("artifacts", {})
    good = not done.returncode
    wanted = {"on_success": good, "on_failure": not good, "always": True}[kept.get("when", "on_success")]
    reports = kept.get("reports", {}).get("junit", ())
    return RanJob(
        outcome="success" if good else "failed",
        allowed=bool(job.get("allow_failure")),
        group=_text(job.get("resource_group", ""), variables),
        log=done.stdout + done.stderr + after.stdout + after.stderr,
        artifacts=_found(source, kept.get("paths", ())) if wanted else (),
        junit=_found(source, reports),
    )


def _shell(commands: Any, source: Path, env: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    text = "\n".join(["set -eo pipefail", *commands, ""])
    return subprocess.run(
        ["bash"], input=text, cwd=source, env=dict(env), capture_output=True, text=True, check=False, timeout=timeout
    )


def _found(source: Path, patterns: Any) -> tuple[str, ...]:
    """The files of patterns; one that ends with a slash is a folder with all that is in it."""
    found = [path for each in patterns for path in source.glob(f"{each}**/*" if each.endswith("/") else each)]
    return tuple(sorted({str(path.relative_to(source)) for path in found if path.is_file()}))


def _exists(rules: Any, variables: Mapping[str, str]) -> bool:
    if rules is None:
        return True
    first = next((rule for rule in rules if "if" not in rule or _applies(rule["if"], variables)), None)
    return first is not None and first.get("when") != "never"


def _applies(condition: str, variables: Mapping[str, str]) -> bool:
    """The value of ``if``; a variable alone is true if it is defined and not empty, and ``null`` is one that is not."""
    words = _RULE.findall(condition)
    if "".join(words).replace(" ", "") != condition.replace(" ", ""):
        raise ValueError(f"not a condition that is known here: {condition}")
    values: dict[str, Any] = {}
    python = []
    for word in words:
        known = {"&&": "and", "||": "or", "null": "None"}.get(word, word)
        if word[0] in '$"':
            known = f"v{len(values)}"
            values[known] = variables.get(word[1:]) if word[0] == "$" else word[1:-1]
        python.append(known)
    return bool(eval(" ".join(python), {"__builtins__": {}}, values))


def _expanded(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables whose values may name others, each after those that it names."""
    made: dict[str, str] = {}

    def value(name: str, on_the_way: tuple[str, ...]) -> str:
        if name not in made:
            if name in on_the_way:
                raise InvalidPipeline(f"circular variable {name}")
            text = str(variables.get(name, ""))
            made[name] = _REFERENCE.sub(
                lambda found: "$" if found[1] else value(found[2] or found[3], (*on_the_way, name)), text
            )
        return made[name]

    return {name: value(name, ()) for name in variables}


def _text(text: str, variables: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda found: "$" if found[1] else variables.get(found[2] or found[3], ""), text)
