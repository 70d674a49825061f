"""How far the proof of each line is (``.trainwright/prove/<framework>/<line>/``), so that a killed run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args

from trainwright.catalog.image_line import Line
from trainwright.core.owned import write_atomically
from trainwright.core.paths import state_dir
from trainwright.core.records import Document, MisfitError, Record, read_record

# In this order; the first that fails is the last of its line.
StepName = Literal["sources", "lock", "build", "smoke", "rehearsal"]
STEPS: tuple[StepName, ...] = get_args(StepName)
_FILE = "run.json"


class StepRun(Document):
    """A step of a line. ``says``: why it failed; ``remedy``: what to do."""

    step: StepName
    outcome: Literal["passed", "failed"]
    seconds: float
    says: str = ""
    remedy: str = ""


class LineRun(Record):
    """The steps of a line so far, for one plan; ``image``: what was built."""

    schema: Literal["trainwright/prove-run/1"] = "trainwright/prove-run/1"
    plan: str
    steps: tuple[StepRun, ...] = ()
    image: str = ""

    def passed(self, step: str) -> bool:
        """Whether a step has passed."""
        return any(each.step == step and each.outcome == "passed" for each in self.steps)

    @property
    def done(self) -> bool:
        """Whether every step has passed."""
        return all(self.passed(step) for step in STEPS)

    def with_step(self, made: StepRun) -> LineRun:
        """The run after a step, in place of an earlier try of it."""
        return self.replace(steps=(*(each for each in self.steps if each.step != made.step), made))


def folder_of(entry: Line) -> Path:
    """The folder with the state of a line and what its steps left."""
    return state_dir() / "prove" / entry.path.parent.parent.name / entry.name


def begin(entry: Line, plan: str, *, again: bool) -> LineRun:
    """The run of a line: that of an earlier command, if it was of the same plan and is not to be made again."""
    from trainwright.core.data_files import read_state  # loads YAML, which a page of help does not need

    if not again:
        try:
            found = read_record(LineRun, read_state(folder_of(entry) / _FILE))
        except MisfitError:
            pass
        else:
            if found.plan == plan:
                return found
    return LineRun(plan=plan)


def keep(entry: Line, run: LineRun) -> None:
    """Write down how far a line has come."""
    write_atomically(folder_of(entry) / _FILE, json.dumps(run.as_json(), indent=1) + "\n")
