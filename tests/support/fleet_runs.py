"""A run over image lines as it is in its folder, with the build records of what it built."""

from __future__ import annotations

from datetime import datetime, timedelta

from tests.support.report_records import HOSTILE, full_record
from trainwright.build import store
from trainwright.build.ledger import BuiltLayer
from trainwright.build.store import BuildRecord
from trainwright.fleet.run_folder import RunFolder, UnitError, UnitProgress, create

FIRST, SECOND, BROKEN, LATE = "pytorch-2.6.0-cu124-debian", "pytorch-2.7.1-cu126-debian", "broken", "late"
IMAGES = {FIRST: f"sha256:{'1a' * 32}", SECOND: f"sha256:{'2b' * 32}"}
BEGIN = datetime.fromisoformat("2026-11-23T21:50:38+00:00")
GB = 10**9


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="seconds")


def recorded(name: str, *layers: tuple[str, str, int], built: float, smoke: bool = True) -> BuildRecord:
    """Keep the record of a line's image.

    Args:
        name: of the line.
        layers: digest, component and bytes of each.
        built: when, in seconds from the beginning of the run.
        smoke: whether it was tested.
    """
    record = full_record(IMAGES[name])
    assert record.timeline is not None
    record = record.replace(
        layers=tuple(BuiltLayer(digest=f"sha256:{d * 64}", component=c, bytes=b, step="COPY") for d, c, b in layers),
        timeline=record.timeline.replace(built_at=at(built)),
        cached_steps=2,
        total_steps=9,
        smoke=record.smoke if smoke else None,
    )
    store.save(record)
    return record


def unit(name: str, state: str, start: float, seconds: float, **more: object) -> UnitProgress:
    known = {"plan": "1" * 64, "request": f"--name {name}", "kind": "line", "log": f"/logs/{name}.log"}
    return UnitProgress(
        **{**known, "name": name, "state": state, "started_at": at(start), "seconds": seconds, **more}  # type: ignore[arg-type]
    )


def made_run(*, hostile: bool = False) -> RunFolder:
    """Four lines: one built and proven, one built and not tested, one that failed, one that has not begun.

    Shared stages take the first minute. The first line then runs for 200 s, beside it the second for 100 s, and the
    third fails an hour after those have ended. Both images have the layers of Python (1 GB) and ssh (1 kB).
    """
    folder = create(HOSTILE if hostile else "pytorch-*", (FIRST, SECOND, BROKEN, LATE), {"smoke": True})
    shared = [("a", "python", GB), ("b", "ssh", 1000)]
    recorded(FIRST, *shared, ("c", "pytorch", 4 * GB), built=200)
    # From the cache: its steps ran before this run.
    recorded(SECOND, *shared, ("d", HOSTILE if hostile else "pytorch", 5 * GB), built=-500, smoke=False)
    for each in (
        unit("shared_1", "built", 0, 60, kind="stages", stages=("os", "metis")),
        unit(FIRST, "built", 60, 200, image=IMAGES[FIRST], tags=("trainwright/pytorch:first",), size_bytes=5 * GB),
        unit(SECOND, "built", 70, 100, image=IMAGES[SECOND], size_bytes=6 * GB),
        unit(
            BROKEN,
            "failed",
            3860,
            40,
            error=UnitError(exit_code=8, error="source", message=HOSTILE if hostile else "no such file\nat all"),
        ),
    ):
        folder.keep(each)
    return folder
