"""A run over units that a tiny real program builds (``fleet_worker.sh``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainwright.fleet.fleet import Fleet, Work
from trainwright.fleet.run_folder import RunFolder, UnitProgress, create
from trainwright.fleet.view import RunView, SilentRun

WORKER = Path(__file__).with_name("fleet_worker.sh")


class Yard:
    """The folder in which the worker reads what it is to do, and notes what it did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def tell(self, name: str, *does: str) -> None:
        """What the worker does with a unit: at its first try, at its second, ..."""
        (self.folder / name).write_text("".join(f"{each}\n" for each in does))

    def go(self) -> None:
        """Let hanging workers end."""
        (self.folder / "go").touch()

    @property
    def events(self) -> list[str]:
        """What was noted, such as ``start a``."""
        path = self.folder / "events"
        return path.read_text().splitlines() if path.exists() else []


def work(name: str, *needs: str, stages: Sequence[str] = (), wanted: int = 1) -> Work:
    """A unit that the worker builds."""
    progress = UnitProgress(
        name=name, kind="stages" if stages else "line", plan=f"plan-{name}", request=f"--name {name}", stages=stages
    )
    return Work(progress, (str(WORKER), "--name", name), needs, wanted)


def fleet(
    *works: Work, jobs: int = 2, keep_going: bool = False, view: RunView | None = None
) -> tuple[Fleet, RunFolder]:
    """A fleet that has not begun, and its folder."""
    folder = create("pattern", tuple(each.progress.name for each in works), {})
    return Fleet(folder, works, jobs=jobs, keep_going=keep_going, view=view or SilentRun()), folder


class When(SilentRun):
    """A view that does something when these events have been noted."""

    def __init__(self, yard: Yard, does: Callable[[], None], *events: str) -> None:
        self.yard, self.does, self.events, self.closed = yard, does, set(events), False
        self.limit = time.monotonic() + 30

    def tick(self, running: Sequence[UnitProgress]) -> None:
        """Look at the events."""
        assert running and time.monotonic() < self.limit, self.yard.events
        if self.events <= set(self.yard.events):
            self.does()

    def close(self) -> None:
        """Take note of it."""
        self.closed = True
