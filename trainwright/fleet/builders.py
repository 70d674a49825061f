"""The builders of a run, where it has several: which of them takes the next unit, and which do not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Builders:
    """Gives each unit to the builder with the least to do.

    Args:
        names: of the builders, in the order of preference.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._running = dict.fromkeys(names, 0)
        self._lost: set[str] = set()
        self._places: dict[str, str] = {}

    def take(self, unit: str, needs: Iterable[str]) -> str:
        """The builder for a unit: of those with equally much to do, one with what the unit needs in its cache."""
        near = {self._places.get(name) for name in needs}
        free = [name for name in self._running if name not in self._lost]
        chosen = min(free, key=lambda name: (self._running[name], name not in near))
        self._running[chosen] += 1
        self._places[unit] = chosen
        return chosen

    def end(self, unit: str) -> None:
        """Take note that a unit has ended."""
        self._running[self._places[unit]] -= 1

    def lose(self, unit: str) -> bool:
        """Give nothing more to the builder of a unit; whether there is another one, which can take it."""
        name = self._places[unit]
        if len(self._lost | {name}) == len(self._running):
            return False
        self._lost.add(name)
        return True
