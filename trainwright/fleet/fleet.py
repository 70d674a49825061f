"""Builds the units of a run, each by a process of our own program, and writes down how far each is.

A unit is built by ``build --json`` with its progress in a log. Nothing of a build is done here, so a line that fails in
a run fails alone in the same way. Ctrl-C and SIGTERM end the processes by their numbers; those that a killed run has
left are ended when it is resumed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trainwright.core.data_files import read_state
from trainwright.core.errors import BuildFailed, EngineError, Failure, InternalError
from trainwright.core.processes import described
from trainwright.core.runner import Child, Completed, end, spawn
from trainwright.fleet.builders import Builders
from trainwright.fleet.run_folder import RunFolder, UnitError, UnitProgress
from trainwright.fleet.schedule import Schedule, Unit
from trainwright.fleet.view import RunView, last_lines

PAUSE = 0.1  # seconds between two looks at the processes
_LAST = 5  # lines of a log that say why a process ended that could not say so itself


@dataclass(frozen=True)
class Work:
    """A unit to build.

    Attributes:
        progress: how far it is, before it starts.
        argv: the command that builds it; prints the document of ``build --json``.
        needs, wanted: as of :class:`trainwright.fleet.schedule.Unit`.
    """

    progress: UnitProgress
    argv: tuple[str, ...]
    needs: tuple[str, ...] = ()
    wanted: int = 1


class Fleet:
    """The units of one run while they are built.

    Args:
        folder: of the run; this process holds it.
        works: what to build.
        jobs: how many units are built at once.
        keep_going: whether further lines start after one has failed. Stages that fail stop nothing: the lines build
            them themselves.
        view: shows each change.
        builders: of buildx, to which the units are given; without any, the engine's own builds. One that does not
            answer gets nothing more, and another takes its unit.
    """

    def __init__(
        self,
        folder: RunFolder,
        works: Sequence[Work],
        *,
        jobs: int,
        keep_going: bool,
        view: RunView,
        builders: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._works = {work.progress.name: work for work in works}
        self._schedule = Schedule([Unit(work.progress.name, work.needs, work.wanted) for work in works], jobs)
        self._keep_going = keep_going
        self._view = view
        self._builders = Builders(builders) if builders else None
        self._children: dict[str, Child] = {}
        self._progress = {work.progress.name: work.progress for work in works}

    @property
    def progress(self) -> list[UnitProgress]:
        """How far each unit is, in the order in which they were given."""
        return list(self._progress.values())

    def run(self) -> None:
        """Build everything. A failure of a unit is in its progress, and is not raised.

        Raises:
            KeyboardInterrupt: Ctrl-C or SIGTERM; every process has ended, and its unit is pending again.
            OSError: a process cannot be started, or a file cannot be written; as above.
        """
        for progress in self.progress:
            self._folder.keep(progress)
        try:
            while not self._schedule.done:
                for name in self._schedule.start():
                    self._begin(name)
                if not self._collect():
                    self._view.tick([self._progress[name] for name in self._children])
                    time.sleep(PAUSE)
        except BaseException:
            self._abandon()
            raise

    def _begin(self, name: str) -> None:
        before, work = self._progress[name], self._works[name]
        log = self._folder.log(before.kind, name)
        builder = self._builders.take(name, work.needs) if self._builders is not None else ""
        argv = (*work.argv, "--builder", builder) if builder else work.argv
        child = spawn(argv, out=self._folder.answer(before.kind, name), log=log)
        self._children[name] = child
        self._note(
            before.replace(
                state="running", process=described(child.pid), builder=builder, started_at=_now(), log=str(log)
            ),
        )
        self._view.started(self._progress[name])

    def _collect(self) -> bool:
        """Take note of what has ended; whether anything has."""
        ended = [(name, done) for name, child in self._children.items() if (done := child.ended()) is not None]
        for name, done in ended:
            progress = self._outcome(name, done)
            del self._children[name]
            if self._is_elsewhere(progress):
                waits = self._schedule.again(name)
                self._note(progress.replace(state="pending" if waits else "skipped", error=None))
                continue
            self._note(progress)
            self._schedule.end(name)
            self._view.ended(progress)
            if progress.state == "failed" and progress.kind == "line" and not self._keep_going:
                for left in self._schedule.stop():
                    if self._progress[left].state == "pending":
                        self._note(self._progress[left].replace(state="skipped"))
        return bool(ended)

    def _is_elsewhere(self, progress: UnitProgress) -> bool:
        """Whether another builder takes a unit whose own does not answer."""
        if self._builders is None:
            return False
        self._builders.end(progress.name)
        error = progress.error
        if error is None or error.exit_code != EngineError.exit_code or not self._builders.lose(progress.name):
            return False
        self._view.lost(progress)
        return True

    def _abandon(self) -> None:
        """End every process; what has not been built meanwhile is pending again."""
        self._view.close()
        end(described(child.pid) for child in self._children.values())
        for name, child in self._children.items():
            done = child.ended()
            progress = self._progress[name] if done is None or not done.ok else self._outcome(name, done)
            self._note(progress if progress.state == "built" else progress.replace(state="pending", ended_at=_now()))

    def _outcome(self, name: str, done: Completed) -> UnitProgress:
        """What became of a unit whose process has ended."""
        progress = self._progress[name].replace(ended_at=_now(), seconds=round(done.seconds, 1))
        answer = read_state(self._folder.answer(progress.kind, name))
        answer = answer if isinstance(answer, dict) else {}
        if done.ok and progress.kind == "stages":
            return progress.replace(state="built")
        # Of --stay, the address of the image in its registry.
        if done.ok and isinstance(image := answer.get("image_id") or answer.get("image"), str):
            tags, size = tuple(answer.get("tags", ())), answer.get("size_bytes", 0)
            return progress.replace(state="built", image=image, tags=tags, size_bytes=size)
        return progress.replace(state="failed", error=self._error(progress, done, answer))

    def _error(self, progress: UnitProgress, done: Completed, answer: dict[str, Any]) -> UnitError:
        if not done.ok and isinstance(answer.get("message"), str):
            said = {key: str(answer.get(key, "")) for key in ("error", "message", "remedy")}
            return UnitError(exit_code=done.returncode, **said)
        last = "\n".join(last_lines(self._folder.log(progress.kind, progress.name), _LAST))
        if done.ok:
            return UnitError(
                exit_code=InternalError.exit_code, error=InternalError.kind, message=f"no document was written\n{last}"
            )
        by = f"signal {done.returncode - 128} ended it" if done.returncode > 128 else f"exit code {done.returncode}"
        return UnitError(exit_code=done.returncode, error=BuildFailed.kind, message=f"{by}\n{last}".strip())

    def _note(self, progress: UnitProgress) -> None:
        self._progress[progress.name] = progress
        self._folder.keep(progress)


def end_left_over(units: Iterable[UnitProgress]) -> None:
    """End the processes of a run that was killed: nobody would take note of what they build."""
    end(unit.process for unit in units if unit.state == "running")


def exit_code(units: Iterable[UnitProgress]) -> int:
    """The exit code of a run: 0, that of its failed lines if they have the same one, else that of a failed build."""
    codes = {unit.error.exit_code for unit in units if unit.kind == "line" and unit.error is not None}
    if not codes:
        return 0
    known = {kind.exit_code for kind in Failure.__subclasses__()} - {Failure.exit_code}
    return codes.pop() if len(codes) == 1 and codes <= known else BuildFailed.exit_code


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
