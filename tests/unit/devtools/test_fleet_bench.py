"""The simulation of many builders: what waits for the client, against runs that were worked out by hand."""

from __future__ import annotations

import pytest

from bench.fleet import Client, bottleneck, simulate
from trainwright.fleet.fleet import Work
from trainwright.fleet.run_folder import UnitProgress

NAMES = ("a", "b", "c", "d")
RUN = [Work(UnitProgress(name=name, kind="line", plan="p", request=""), ("true",)) for name in NAMES]
SECONDS = dict.fromkeys(NAMES, 10.0)


def client(*, sent: int = 0, received: float = 0.0, before: float = 0.0, after: float = 0.0, cores: int = 1) -> Client:
    return Client(before, after, dict.fromkeys(NAMES, sent), dict.fromkeys(NAMES, received), 1.0, cores)


@pytest.mark.parametrize(
    ("builders", "costs", "seconds"),
    [
        (1, {}, 40),
        (4, {}, 10),
        # Four contexts of 5 s go one after the other; the last builder begins after 20 s.
        (4, {"sent": 5}, 30),
        # Builders end after 15, 20, 25 and 30 s, and the link is free of contexts after 20: 23, 26, 29, 33.
        (4, {"sent": 5, "received": 3}, 33),
        # With one builder nothing is side by side.
        (1, {"sent": 5, "received": 3}, 72),
        # One core: processes of 2 s start builders after 2, 4, 6 and 8 s; probes of 1 s follow each by itself.
        (4, {"before": 2, "after": 1}, 19),
        (4, {"before": 2, "after": 1, "cores": 4}, 13),
    ],
)
def test_a_run_takes_what_it_takes_by_hand(builders: int, costs: dict[str, float], seconds: float) -> None:
    run = simulate(RUN, SECONDS, builders=builders, client=client(**costs))  # type: ignore[arg-type]
    assert (run.seconds, run.work) == (seconds, 40)


def test_from_how_many_builders_on_the_client_decides() -> None:
    """40 s of builders; the link is busy for 4 * (5 + 3) = 32 s, a core for 4 * (2 + 1) = 12 s."""
    assert bottleneck(RUN, SECONDS, client(sent=5, received=3, before=2, after=1)) == (2, "transfers")
    assert bottleneck(RUN, SECONDS, client(before=2, after=1)) == (4, "cores")
    assert bottleneck(RUN, SECONDS, client(before=2, after=1, cores=2)) == (7, "cores")
