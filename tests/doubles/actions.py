"""GitHub Actions as far as a workflow with shell steps sees it: the jobs of a run, their matrices, their steps.

Written from GitHub's documents ("Workflow syntax for GitHub Actions", "Metadata syntax reference", "Contexts",
"Evaluate expressions in workflows and actions"). What it does as the real one: a job starts after those that it needs,
and if one of these, or one before them, failed or was skipped only with ``!cancelled()``; it can ask how those ended
(``needs.JOB.result``); each row of a matrix is a job of its own; a step runs in a new shell, and after a failed one
only those whose condition asks for it; ``env`` of the workflow, the job and the step; outputs of steps; files such as
``GITHUB_STEP_SUMMARY``. A composite action that the test names is run: its steps name their shell, see its inputs and
no steps but its own, and its outputs are those of the step that uses it.
Expressions are those of properties, ``!``, ``==``, ``!=``, ``&&`` and ``||``. What it does not know: other actions (a
step is noted and not run), services. The shell is the one that the workflow or the step names, without ``sudo``.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_TOKEN = re.compile(r"\s*('[^']*'|[A-Za-z_][\w.-]*(?:\(\))?|==|!=|&&|\|\||!)")
_WORDS = {"&&": "and", "||": "or", "!": "not ", "==": "==", "!=": "!="}


@dataclass(frozen=True)
class RanStep:
    """A step: its name or action, the inputs of an action, and ``success``, ``failure`` or ``skipped``."""

    name: str
    inputs: Mapping[str, str]
    outcome: str


@dataclass(frozen=True)
class Action:
    """A composite action: its file as data, and the folder that it was checked out to."""

    document: Mapping[str, Any]
    path: Path


@dataclass(frozen=True)
class RanJob:
    """A job, one row of its matrix.

    Attributes:
        name: as it is shown.
        outcome: ``success``, ``failure`` or ``skipped``.
        steps: in their order; none of a job that is skipped.
        summary: what the steps wrote for the page of the run.
        log: what they said.
    """

    name: str
    outcome: str
    steps: tuple[RanStep, ...] = ()
    summary: str = ""
    log: str = ""


def run_workflow(
    source: Path,
    workflow: Mapping[str, Any],
    *,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    folder: Path,
    actions: Mapping[str, Action] | None = None,
) -> dict[str, list[RanJob]]:
    """Run a workflow in a source folder, one job after the other.

    Args:
        source: a checkout, in which all jobs work.
        workflow: the file as data.
        variables: of the repository (``vars``).
        environment: what the runner has set, ``PATH`` above all.
        folder: for the files of the runner.
        actions: the composite actions that are run, as ``uses`` names them.

    Returns:
        The rows of each job that ran, by the job's id.
    """
    ran: dict[str, list[RanJob]] = {}
    chain: dict[str, set[str]] = {}
    for name, job in workflow["jobs"].items():  # each after those that it needs, as ours are written
        needs = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        results = {other: _result(ran[other]) for other in needs}
        # Unless a condition says otherwise, one that failed or was skipped ends the whole chain after it.
        chain[name] = set(needs).union(*(chain[other] for other in needs))
        good = all(_result(ran[other]) == "success" for other in chain[name])
        rows = job["strategy"]["matrix"]["include"] if "strategy" in job else [{}]
        ran[name] = []
        for index, row in enumerate(rows):
            contexts = {
                "vars": dict(variables),
                "matrix": row,
                "github": dict(GITHUB),
                "strategy": {"job-index": str(index)},
                "needs": {other: {"result": result} for other, result in results.items()},
                "steps": {},
            }
            if not _applies(job.get("if"), contexts, good):
                ran[name].append(RanJob(name, "skipped"))
                continue
            own = {key: _text(str(v), contexts) for each in (workflow, job) for key, v in each.get("env", {}).items()}
            runner = _Runner(source, folder / f"{name}-{index}", {**environment, **own}, actions or {})
            shell = workflow.get("defaults", {}).get("run", {}).get("shell", "bash -e {0}")
            good_steps = runner.run_steps(job["steps"], contexts, shell)
            outcome = "success" if good_steps else "failure"
            shown = _text(job.get("name", name), contexts)
            ran[name].append(RanJob(shown, outcome, tuple(runner.steps), runner.summary, "".join(runner.log)))
    return ran


def _result(rows: Sequence[RanJob]) -> str:
    """What a job that needs these rows of a matrix is told."""
    outcomes = {row.outcome for row in rows}
    return next((each for each in ("failure", "skipped") if each in outcomes), "success")


GITHUB = {
    **{"sha": "0" * 40, "run_id": "4711", "run_number": "7", "run_attempt": "1"},
    **{"server_url": "https://github.com", "repository": "team/images"},
}


class _Runner:
    """The machine of one job: what its steps say and leave behind. A step without a name has its first line for one."""

    def __init__(
        self, source: Path, folder: Path, environment: Mapping[str, str], actions: Mapping[str, Action]
    ) -> None:
        self._source, self._folder, self._actions = source, folder, actions
        (folder / "temp").mkdir(parents=True)
        self._environment = {
            **environment,
            **{f"GITHUB_{name.upper()}": value for name, value in GITHUB.items()},
            "GITHUB_STEP_SUMMARY": str(folder / "summary"),
            "GITHUB_WORKSPACE": str(source),
            "RUNNER_TEMP": str(folder / "temp"),
            "CI": "true",
        }
        self.steps: list[RanStep] = []
        self.log: list[str] = []
        self._count = 0

    @property
    def summary(self) -> str:
        """What the steps wrote for the page of the run."""
        path = self._folder / "summary"
        return path.read_text() if path.exists() else ""

    def run_steps(self, steps: Sequence[Mapping[str, Any]], contexts: dict[str, Any], shell: str, **more: str) -> bool:
        """Run steps in their order; whether all succeeded.

        Args:
            steps: of a job, or of a composite action.
            contexts: what expressions see; gets the outcome and the outputs of each step with an id.
            shell: of steps that name none; a composite action has none, so each of its steps names one.
            more: variables of the action.
        """
        good = True
        for step in steps:
            name = step.get("name") or step.get("uses") or step["run"].partition("\n")[0]
            inputs = {key: _text(str(value), contexts) for key, value in step.get("with", {}).items()}
            outcome = "success"
            outputs: dict[str, str] = {}
            if not _applies(step.get("if"), contexts, good):
                outcome = "skipped"
            elif "run" in step:
                own = {key: _text(str(value), contexts) for key, value in step.get("env", {}).items()}
                done, outputs = self._shell(step, contexts, shell, {**more, **own})
                outcome = "success" if done else "failure"
            elif step["uses"] in self._actions:
                done, outputs = self._action(self._actions[step["uses"]], inputs, contexts)
                outcome = "success" if done else "failure"
            good = good and outcome != "failure"
            if "id" in step:
                contexts["steps"][step["id"]] = {"outcome": outcome, "outputs": outputs}
            self.steps.append(RanStep(name, inputs, outcome))
        return good

    def _shell(
        self, step: Mapping[str, Any], contexts: Mapping[str, Any], default: str, more: Mapping[str, str]
    ) -> tuple[bool, dict[str, str]]:
        shell = step.get("shell") or default
        if not shell:
            raise ValueError(f"a step of a composite action has no shell: {step}")
        self._count += 1
        script, output = self._folder / f"{self._count}.sh", self._folder / f"{self._count}.output"
        script.write_text(_text(step["run"], contexts))
        output.touch()
        words = [word for word in shlex.split(shell) if word not in ("sudo", "--preserve-env")]
        done = subprocess.run(
            [word.replace("{0}", str(script)) for word in words],
            cwd=self._source / _text(step.get("working-directory", "."), contexts),
            env={**self._environment, **more, "GITHUB_OUTPUT": str(output)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.log += [done.stdout, done.stderr]
        return not done.returncode, dict(line.split("=", 1) for line in output.read_text().splitlines())

    def _action(
        self, action: Action, given: Mapping[str, str], outer: Mapping[str, Any]
    ) -> tuple[bool, dict[str, str]]:
        document = action.document
        defaults = {name: each.get("default", "") for name, each in document["inputs"].items()}
        contexts = {"github": outer["github"], "inputs": {**defaults, **given}, "steps": {}}
        done = self.run_steps(document["runs"]["steps"], contexts, "", GITHUB_ACTION_PATH=str(action.path))
        return done, {name: _text(each["value"], contexts) for name, each in document["outputs"].items()}


def _applies(condition: str | None, contexts: Mapping[str, Any], good: bool) -> bool:
    """Whether a job or a step runs: without a function that asks for the state, only after success."""
    if condition is None:
        return good
    expression = condition.removeprefix("${{").removesuffix("}}")
    asks = any(function in expression for function in ("cancelled()", "always()", "failure()"))
    return bool(_value(expression, contexts, good=good)) and (good or asks)


def _text(text: str, contexts: Mapping[str, Any]) -> str:
    return _EXPRESSION.sub(lambda found: str(_value(found[1], contexts)), text)


def _value(expression: str, contexts: Mapping[str, Any], *, good: bool = True) -> Any:
    """The value of an expression; a property that does not exist is an empty text, as GitHub has it."""
    words: Sequence[str] = _TOKEN.findall(expression)
    if "".join(words).replace(" ", "") != expression.replace(" ", ""):
        raise ValueError(f"not an expression that is known here: {expression}")
    functions = {"cancelled()": False, "always()": True, "success()": good, "failure()": not good}
    values: dict[str, Any] = {}
    python = []
    for word in words:
        if word in _WORDS:
            python.append(_WORDS[word])
            continue
        name = f"v{len(values)}"
        if word[0] == "'":
            values[name] = word[1:-1]
        elif word in functions:
            values[name] = functions[word]
        else:
            found: Any = contexts
            for part in word.split("."):
                found = found.get(part, "") if isinstance(found, Mapping) else ""
            values[name] = found
        python.append(name)
    return eval(" ".join(python), {"__builtins__": {}}, values)
