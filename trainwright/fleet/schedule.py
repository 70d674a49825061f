"""Which unit of a run may start when: at most so many at once, and none before what it needs has ended.

A unit is an image line, or a group of build stages that several lines share. A line waits for the group whose stages it
takes from the builder's cache. It does not depend on its success: without these stages, the line builds them itself.
Nothing here starts a process or reads a clock, so ``bench/fleet.py`` simulates with this module.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Unit:
    """Something to build, in one piece.

    Attributes:
        name: unique in its run.
        needs: names of the units that have to end before this one starts.
        wanted: how many image lines need it; what more of them need starts first.
    """

    name: str
    needs: tuple[str, ...] = ()
    wanted: int = 1


class Schedule:
    """The units of one run, as they wait, run and end.

    Args:
        units: what to build; of units that are equally wanted, the earlier one starts first.
        jobs: how many may run at once.

    Raises:
        ValueError: ``jobs`` is below 1, two units have one name, or what a unit needs is unknown or needs it in turn.
    """

    def __init__(self, units: Sequence[Unit], jobs: int) -> None:
        if jobs < 1:
            raise ValueError(f"jobs: {jobs}")
        self._units = {unit.name: unit for unit in units}
        if len(self._units) < len(units):
            raise ValueError("two units have one name")
        self._jobs = jobs
        self._missing = {unit.name: set(unit.needs) for unit in units}
        self._unblocks: dict[str, list[str]] = {name: [] for name in self._units}
        for unit in units:
            for needed in self._missing[unit.name]:
                if needed not in self._units:
                    raise ValueError(f"{unit.name} needs {needed}, which is not in the run")
                self._unblocks[needed].append(unit.name)
        self._refuse_circles()
        self._place = {unit.name: (-unit.wanted, place) for place, unit in enumerate(units)}
        self._ready: list[tuple[tuple[int, int], str]] = []
        self._queue(name for name, missing in self._missing.items() if not missing)
        self._waiting = set(self._units)
        self._running: set[str] = set()
        self._stopped = False

    def _refuse_circles(self) -> None:
        left = {name: len(missing) for name, missing in self._missing.items()}
        free = [name for name, count in left.items() if not count]
        for name in free:  # grows
            for blocked in self._unblocks[name]:
                left[blocked] -= 1
                if not left[blocked]:
                    free.append(blocked)
        if len(free) < len(left):
            raise ValueError(f"these need each other: {', '.join(sorted(set(left) - set(free)))}")

    def _queue(self, names: Iterable[str]) -> None:
        for name in names:
            heapq.heappush(self._ready, (self._place[name], name))

    @property
    def running(self) -> frozenset[str]:
        """The names of the units that run."""
        return frozenset(self._running)

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing will start."""
        return not self._running and (self._stopped or not self._waiting)

    def start(self) -> list[str]:
        """The names of the units that start now, in order; they count as running from here on."""
        started: list[str] = []
        while self._ready and len(self._running) < self._jobs and not self._stopped:
            _, name = heapq.heappop(self._ready)
            self._running.add(name)
            self._waiting.remove(name)
            started.append(name)
        return started

    def end(self, name: str) -> None:
        """Take note that a running unit has ended, whatever came of it.

        Raises:
            ValueError: it does not run.
        """
        if name not in self._running:
            raise ValueError(f"{name} does not run")
        self._running.remove(name)
        for blocked in self._unblocks[name]:
            self._missing[blocked].discard(name)
            if not self._missing[blocked]:
                self._queue([blocked])

    def again(self, name: str) -> bool:
        """Have a running unit wait once more; whether it will start.

        Raises:
            ValueError: it does not run.
        """
        if name not in self._running:
            raise ValueError(f"{name} does not run")
        self._running.remove(name)
        self._waiting.add(name)
        self._queue([name])
        return not self._stopped

    def stop(self) -> list[str]:
        """Start nothing more; returns the names of the units that will not start, in their order."""
        self._stopped = True
        return [name for name in self._units if name in self._waiting]
