"""Merges the claims about instance types (:mod:`devtools.instance_claims`) into one record per type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from devtools.instance_claims import Claims, Facts
from trainwright.core.errors import RequestError
from trainwright.core.records import parse_record
from trainwright.sagemaker.instances import (
    SCHEMA,
    Instance,
    InstanceCorrection,
    InstanceProvenance,
)


def merge(
    valid: Sequence[str],
    claims: Claims,
    corrections: Sequence[InstanceCorrection] = (),
    *,
    training_only: Sequence[str] = (),
) -> dict[str, Instance]:
    """One record per valid training instance type, in the order of names (numbers by value).

    Args:
        valid: the types that SageMaker accepts.
        claims: source → instance type → facts; types that are not valid are passed over.
        corrections: applied to the claims first.
        training_only: sources that name training types alone: another name in them is an error (a typing error there).

    Raises:
        RequestError: sources contradict each other, a type's facts are incomplete, or a correction does not apply any
            more; every such case is listed, also in ``details["faults"]``.
    """
    faults: list[str] = []
    corrected = _corrected(claims, corrections, faults)
    for source in training_only:
        strangers = sorted(set(corrected.get(source, {})) - set(valid))
        faults += [f"{source} names {name}, which is no training instance type" for name in strangers]
    table: dict[str, Instance] = {}
    for name in sorted(valid, key=_natural):
        said = {source: types[name] for source, types in corrected.items() if name in types}
        facts: Facts = {"neuron_devices": 0, "toolkit_efa": False, "toolkit_rdma": False}
        complete = len(faults)
        for field in Instance.__struct_fields__:
            values = {source: each[field] for source, each in said.items() if field in each}
            if len(set(values.values())) > 1:
                listed = ", ".join(f"{value!r} ({source})" for source, value in values.items())
                faults.append(f"{name}: {field} is {listed}")
            if values:
                facts[field] = next(iter(values.values()))
        faults += [f"{name}: {fault}" for fault in _implausible(facts)]
        if len(faults) == complete:
            table[name] = parse_record(
                Instance,
                {"gpu": None, "gpu_memory_gib": None, "neuron_cores": 0, **facts, "name": name, "sources": tuple(said)},
                name,
            )
    if faults:
        raise RequestError(
            "the sources do not make a table:\n  " + "\n  ".join(faults),
            remedy="Find out which is right, and say so in CORRECTIONS (devtools/refresh_instances.py).",
            faults=faults,
        )
    return table


def _corrected(
    claims: Claims, corrections: Sequence[InstanceCorrection], faults: list[str]
) -> dict[str, dict[str, Facts]]:
    """A copy of the claims with the corrections made; one whose wrong value is gone is a fault."""
    copy = {source: {name: dict(facts) for name, facts in types.items()} for source, types in claims.items()}
    for each in corrections:
        types = copy.get(each.source, {})
        for name in each.instances:
            facts = types.get(name)
            if facts is None or (each.field != "name" and facts.get(each.field) != each.says):
                now = "it is not there" if facts is None else f"it says {facts.get(each.field)!r}"
                faults.append(f"a correction has nothing to correct: {each.source}, {name}, {each.field}: {now}")
            elif each.field != "name":
                facts[each.field] = each.taken
            elif each.taken in types:
                faults.append(f"a correction must go: {each.source} has {each.taken} besides {name}")
            else:
                types[str(each.taken)] = types.pop(name)
    return copy


def _implausible(facts: Facts) -> Iterator[str]:
    """What is missing or cannot be true of one type."""
    for field in ("gpus", "efa", "vcpus", "memory_gib", "architecture"):
        if field not in facts:
            yield f"no source says {field}"
    if facts["neuron_devices"] and not facts.get("neuron_cores"):
        yield "no source says neuron_cores"
    if facts["toolkit_efa"] and facts.get("efa") == 0:
        yield "efa is 0, but sagemaker-training treats it as an EFA type"
    if facts["toolkit_rdma"] and not facts["toolkit_efa"]:
        yield "sagemaker-training sets RDMA for it, but not EFA"


def _natural(name: str) -> tuple[str | int, ...]:
    parts = re.split(r"(\d+)", name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def table_text(table: Mapping[str, Instance], provenance: InstanceProvenance) -> str:
    """The content of ``instances.json``: a line per record, so that a change reads well in a review."""
    known = provenance.as_json()
    sources = [f"{json.dumps(name)}: {json.dumps(source)}" for name, source in known["sources"].items()]
    corrections = [json.dumps(each) for each in known["corrections"]]
    rows = [f"{json.dumps(name)}: {json.dumps(_row(each))}" for name, each in table.items()]
    return "\n".join(
        [
            "{",
            f'"schema": {json.dumps(SCHEMA)},',
            f'"provenance": {{"made_by": {json.dumps(known["made_by"])}, "sources": {{',
            ",\n".join(sources),
            '}, "corrections": [',
            ",\n".join(corrections),
            "]},",
            '"instances": {',
            ",\n".join(rows),
            "}",
            "}\n",
        ]
    )


def _row(each: Instance) -> dict[str, Any]:
    row = {key: value for key, value in each.as_json().items() if key != "name"}
    return {key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in row.items()}
