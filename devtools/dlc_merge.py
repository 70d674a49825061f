"""Merges the claims about AWS's Deep Learning Containers (:mod:`devtools.dlc_claims`) into one record per image."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.version import Version

from devtools.dlc_claims import Listed
from trainwright.core.errors import RequestError
from trainwright.core.records import parse_record
from trainwright.sagemaker.dlc import Claim, DlcCorrection, PublishedImage, Support, Unpublished, registry_of

SOURCES = ("documents", "facts", "sagemaker-core")  # the earlier, the more exact: whose tag is taken
Key = tuple[str, str, str | None, str]  # repository, version, transformers, device


def merge(
    claims: Sequence[Claim],
    listed: Sequence[Listed],
    support: Sequence[Support],
    corrections: Sequence[DlcCorrection] = (),
) -> tuple[list[PublishedImage], list[Unpublished], dict[str, tuple[str, ...]]]:
    """One record per image, in the order of repositories and versions.

    Args:
        claims: of ``documents`` and ``facts``.
        listed: of ``sagemaker-core``, with their accounts.
        support: fills dates that no claim has.
        corrections: applied to the claims first.

    Returns:
        The images; what has no tag in any source; the sets of regions that the images name.

    Raises:
        RequestError: sources contradict each other, or a correction does not apply any more; every such case is
            listed, also in ``details["faults"]``.
    """
    faults: list[str] = []
    everything = _corrected([*claims, *(each.claim for each in listed)], corrections, faults)
    sdk = zip(everything[len(claims) :], listed, strict=True)
    regions = {_name(claim): tuple(sorted(each.accounts)) for claim, each in sdk}
    names = _full_versions(everything)
    groups: dict[Key, list[Claim]] = defaultdict(list)
    for claim in sorted(everything, key=lambda each: SOURCES.index(each.source)):
        version = names.get((claim.repository, claim.version), claim.version)
        groups[claim.repository, version, claim.transformers, claim.device].append(claim)
    images: list[PublishedImage] = []
    unpublished: list[Unpublished] = []
    sets: dict[tuple[str, ...], str] = {}
    for key in sorted(groups, key=_order):
        group = groups[key]
        faults += _contradictions(key, group)
        for row in _rows(key, group, support, faults):
            if isinstance(row, Unpublished):
                unpublished.append(row)
                continue
            there = next((regions[_name(each)] for each in _attached(row, group) if _name(each) in regions), None)
            if there is not None:
                row = row.replace(regions=sets.setdefault(there, f"r{len(sets) + 1}"))  # noqa: PLW2901
            images.append(row)
    if faults:
        raise RequestError(
            "the sources do not make a table:\n  " + "\n  ".join(faults),
            remedy="Find out which is right, and say so in CORRECTIONS (devtools/refresh_dlc.py).",
            faults=faults,
        )
    return images, unpublished, {name: there for there, name in sets.items()}


def accounts_of(listed: Sequence[Listed]) -> dict[str, dict[str, str]]:
    """dlc and smp → region → account.

    Raises:
        RequestError: images of one registry lie in two accounts of a region.
    """
    accounts: dict[str, dict[str, str]] = {}
    for each in listed:
        known = accounts.setdefault(registry_of(each.claim.repository), {})
        for region, account in each.accounts.items():
            if known.setdefault(region, account) != account:
                what = f"{_name(each.claim)}: {region} has account {account}, other images {known[region]}"
                raise RequestError(what, faults=[what])
    return {name: dict(sorted(regions.items())) for name, regions in sorted(accounts.items())}


def _name(claim: Claim) -> str:
    extra = f"-transformers{claim.transformers}" if claim.transformers else ""
    return f"{claim.repository}:{claim.tag or f'{claim.version}{extra}-{claim.device}-{claim.python}'}"


def _order(key: Key) -> tuple[str, Version, Version, str]:
    return key[0], Version(key[1]), Version(key[2] or "0"), key[3]


def _full_versions(claims: Iterable[Claim]) -> dict[tuple[str, str], str]:
    """(repository, ``2.12``) → ``2.12.1``, where the repository has one such version."""
    full: dict[tuple[str, str], set[str]] = defaultdict(set)
    for claim in claims:
        if claim.version.count(".") == 2:
            full[claim.repository, claim.version.rpartition(".")[0]].add(claim.version)
    return {minor: next(iter(versions)) for minor, versions in full.items() if len(versions) == 1}


def _corrected(claims: Sequence[Claim], corrections: Sequence[DlcCorrection], faults: list[str]) -> list[Claim]:
    """The claims with the corrections made; one that has nothing to correct is a fault."""
    corrected = list(claims)
    for each in corrections:
        place = [
            index
            for index, claim in enumerate(corrected)
            if (claim.source, claim.repository, claim.tag) == (each.source, each.repository, each.tag)
            and getattr(claim, each.field) == each.says
        ]
        if not place:
            what = f"{each.source}, {each.repository}:{each.tag}, {each.field} {each.says!r}"
            faults.append(f"a correction has nothing to correct: {what}")
        for index in place:
            update: dict[str, Any] = {each.field: each.taken}
            if each.field != "tag" and corrected[index].tag is not None:
                update["tag"] = None if each.taken is None else each.tag.replace(each.says, each.taken)
            corrected[index] = corrected[index].replace(**update)
    return corrected


def _contradictions(key: Key, group: Sequence[Claim]) -> list[str]:
    """Fields of which two sources name different values among the published images of one version."""
    faults = []
    for field in ("python", "cuda", "os"):
        said: dict[str, set[str]] = defaultdict(set)
        for claim in group:
            if claim.tag is not None and getattr(claim, field) is not None:
                said[claim.source].add(getattr(claim, field))
        if len({frozenset(values) for values in said.values()}) > 1:
            listing = ", ".join(f"{' and '.join(sorted(values))} ({source})" for source, values in said.items())
            faults.append(f"{_title(key)}: {field} is {listing}")
    return faults


def _title(key: Key) -> str:
    repository, version, transformers, device = key
    return " ".join(
        each for each in (repository, version, transformers and f"transformers {transformers}", device) if each
    )


def _attached(row: PublishedImage, group: Iterable[Claim]) -> list[Claim]:
    """The claims that can be about an image: nothing that they say is otherwise in it."""
    return [each for each in group if each.python in (None, row.python) and each.cuda in (None, row.cuda)]


def _rows(
    key: Key, group: Sequence[Claim], support: Sequence[Support], faults: list[str]
) -> list[PublishedImage | Unpublished]:
    """The images of one version for one kind of device: one per pair of Python and CUDA version."""
    pairs = {(each.python, each.cuda) for each in group}
    # A pair that says less than another one speaks of that other one.
    exact = sorted(
        (pair for pair in pairs if not any(pair != each and _covers(each, pair) for each in pairs)),
        key=lambda pair: (pair[0] or "", pair[1] or ""),
    )
    rows: list[PublishedImage | Unpublished] = []
    for python, cuda in exact:
        claims = [each for each in group if _covers((python, cuda), (each.python, each.cuda))]
        # A tag without CUDA, such as 1.11.0-gpu-py38, does not say which one of several images it means.
        own = [each for each in claims if sum(_covers(pair, (each.python, each.cuda)) for pair in exact) == 1]
        tag = next((each.tag for each in own if each.tag), None)
        repository, version, transformers, device = key
        if tag is None:
            evidence = tuple(dict.fromkeys(each.evidence for each in own))
            rows.append(Unpublished(repository=repository, version=version, cuda=cuda, evidence=evidence))
            continue
        facts = {
            field: _agreed(f"{_title(key)} {cuda or ''}".strip(), field, claims, faults)
            for field in ("os", "gallery", "released", "end_of_patch")
        }
        evidence = tuple(dict.fromkeys(each.evidence for each in claims))
        for policy in support:
            if (policy.repository, f"{policy.version}.") == (repository, version[: len(policy.version) + 1]):
                for field in ("released", "end_of_patch"):
                    if facts[field] not in (None, getattr(policy, field)):
                        faults.append(
                            f"{_title(key)}: {field} is {facts[field]}, by the policy {getattr(policy, field)}"
                        )
                    facts[field] = getattr(policy, field)
                evidence = (*evidence, policy.evidence)
        row = {
            **facts,
            "repository": repository,
            "version": version,
            "transformers": transformers,
            "device": device,
            "cuda": cuda,
            "python": python,
            "tag": tag,
            "gallery": facts["gallery"] or False,
            "regions": None,
            "evidence": evidence,
        }
        rows.append(parse_record(PublishedImage, row, f"{repository}:{tag}"))
    return rows


def _covers(pair: tuple[str | None, str | None], other: tuple[str | None, str | None]) -> bool:
    return all(theirs in (None, ours) for ours, theirs in zip(pair, other, strict=True))


def _agreed(title: str, field: str, claims: Sequence[Claim], faults: list[str]) -> Any:
    """The value that the claims have for a field, ``None`` where none has one."""
    said = {each.source: getattr(each, field) for each in claims if getattr(each, field) is not None}
    if len(set(said.values())) > 1:
        faults.append(f"{title}: {field} is " + ", ".join(f"{value} ({source})" for source, value in said.items()))
    return next(iter(said.values()), None)
