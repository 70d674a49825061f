"""The record of an image with all that a report shows, names that try to leave their place among it."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.support.build_records import record_of
from trainwright.build.ledger import BuiltLayer, LedgerRow, TimedStep, Timeline
from trainwright.build.store import BuildRecord
from trainwright.catalog.catalog import load_catalog
from trainwright.plan.plan import Plan
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.rehearse.documents import RehearsalCheck, RehearsalDocument

IMAGE, OTHER = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
# What a package or a label can be called in an image of somebody else; none of it may run, or leave its cell.
HOSTILE = "</script><script>pwned=1</script><img src=x onerror=pwned=1>`|\"'&amp;{{1207*1009}}\u202egnp.exe\x1b[31m"


@cache
def plan() -> Plan:
    return resolve(make_request(framework="pytorch", cuda="cu124", version="2.6.0"), load_catalog())


def full_record(image_id: str = IMAGE, *, changed: str = "", smoke: str = "passed") -> BuildRecord:
    """A record in which every part of a report has something in it.

    Args:
        image_id: of the image.
        changed: the component whose layer is another one.
        smoke: the outcome of the test that is called by the hostile name.
    """
    bare = record_of(plan(), image_id, tag=f"trainwright/pytorch:{image_id[7:11]}")
    names = ["base", "os", *(component.name for component in plan().components)]
    layers = [
        BuiltLayer(
            digest=f"sha256:{'f' * 64 if name == changed else f'{number:064x}'}",
            component=name,
            bytes=10**number,
            step=f"COPY --from={name} /out/ /",
        )
        for number, name in enumerate(names, start=1)
    ]
    steps = [
        TimedStep(stage=name, component=name, text=f"RUN {name}", start=float(number), seconds=3.0, cached=False)
        for number, name in enumerate(names)
    ]
    probe: dict[str, Any] = {**bare.probe}
    probe["distributions"] = {**probe["distributions"], HOSTILE: "1.0"}
    probe["distribution_bytes"] = dict.fromkeys(probe["distributions"], 5_000_000)
    probe["distribution_licences"] = {HOSTILE: HOSTILE, "torch": "BSD-3-Clause"}
    probe["image"] = {
        "id": image_id,
        "layers": [layer.digest for layer in layers],
        "labels": {**plan().labels, "org.example": HOSTILE},
        "environment": {**plan().environment, "GREETING": HOSTILE},
    }
    row = {"component": "contract", "check": HOSTILE, "outcome": smoke, "reason": HOSTILE, "seconds": 0.1}
    assert bare.smoke is not None
    return bare.replace(
        size_bytes=sum(layer.bytes for layer in layers),
        ledger=tuple(LedgerRow(name=layer.component, seconds=3.0, bytes=layer.bytes, cached=False) for layer in layers),
        layers=tuple(layers),
        timeline=Timeline(built_at=bare.built_at, steps=tuple(steps)),
        probe=probe,
        smoke={**bare.smoke, "image_id": image_id, "failed": int(smoke == "failed"), "rows": [row]},
    )


def rehearsal(image_id: str, entry_point: str) -> dict[str, Any]:
    """The document of a rehearsal that passed."""
    document = RehearsalDocument(
        schema="trainwright/rehearsal/1",
        outcome="passed",
        image="team/trainer:1",
        image_id=image_id,
        entry_point=entry_point,
        sdk=2,
        launcher="torchrun",
        hosts_asked=2,
        processes_per_host=1,
        world_size=2,
        instance_type="local",
        instance_groups=(),
        network="bridge",
        gpus=False,
        launch_only=False,
        seconds=12.0,
        checks=(RehearsalCheck(check="world size", outcome="passed", says="2"),),
        hosts=(),
        ranks=(),
        launches=(),
        notes=(),
        artifacts={},
        report="",
        cause=None,
    )
    return document.as_json()
