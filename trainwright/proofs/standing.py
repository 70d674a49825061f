"""Whether image lines are proven today: a proof of another plan than the line has now is stale.

``list`` shows it of every line, and a line's plan takes ten milliseconds. So what was found is kept in the user's
cache, under a digest of the times and sizes of all files that it follows from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import Line
from trainwright.catalog.platforms import AMD64
from trainwright.catalog.standing import NEVER, Proven, Standing
from trainwright.core.data_files import parse_json, read_state, read_text
from trainwright.core.errors import Failure, RequestError
from trainwright.core.owned import write_atomically
from trainwright.core.paths import cache_dir, images_dir, own_catalog, templates_dir
from trainwright.core.records import MisfitError, parse_record, read_record
from trainwright.plan.plan import Plan
from trainwright.proofs.places import files

if TYPE_CHECKING:
    from trainwright.proofs.proof import LineProof, ProofHead


def judge(claim: ProofHead, plan: str) -> Standing:
    """What a proof says of a line whose plan has this id today."""
    if claim.proves != plan:
        state: Proven = "stale"
    else:
        state = "failed" if claim.outcome == "failed" else "twin" if claim.stands_for else "proven"
    step = claim.failed_step if state == "failed" else None
    return Standing(state=state, date=claim.date[:10], step=step or "")


def of_plan(plan: Plan) -> Standing:
    """Whether a plan is proven: it is the plan of a line that has a proof.

    Raises:
        RequestError: a proof of its framework was edited, or is not a proof.
    """
    proof = proof_of(plan)
    return NEVER if proof is None else judge(proof, plan.id)


def proof_of(plan: Plan) -> LineProof | None:
    """The proof of a plan's line: of this plan, otherwise of an earlier one.

    Raises:
        RequestError: a proof of its framework was edited, or is not a proof.
    """
    found = None
    for path in files(plan.framework).values():
        text = read_text(path)
        if plan.id not in text and not _same_line(parse_json(text, str(path)), plan):
            continue
        from trainwright.proofs.proof import read

        found = read(path)
        if judge(found, plan.id).state != "stale":
            break
    return found


def of_lines(entries: Iterable[Line], catalog: Catalog) -> dict[Path, Standing]:
    """What is known of image lines, by their files; a line without a proof is missing.

    Raises:
        RequestError: a proof was edited, or is not a proof.
    """
    proofs = files()
    if not proofs:
        return {}
    place, key = _place(), _key(proofs.values())
    known = _kept(place, key)
    found = {}
    for entry in entries:
        if (path := proofs.get((entry.path.parent.parent.name, entry.name))) is None:
            continue
        if (standing := known.get(str(entry.path))) is None:
            standing = known[str(entry.path)] = _judged(path, entry, catalog)
        found[entry.path] = standing
    with suppress(OSError, RequestError):  # a list does not need a writable folder
        rows = {name: each.as_json() for name, each in sorted(known.items())}
        text = json.dumps({"key": key, "rows": rows})
        if not place.is_file() or place.read_text() != text:
            write_atomically(place, text)
    return found


def claim_of(path: Path) -> ProofHead:
    """What the proof in a file claims; raises as :func:`trainwright.proofs.proof.read` does."""
    from trainwright.proofs.proof import ProofHead, check

    text = read_text(path)
    check(text, str(path))
    return parse_record(ProofHead, parse_json(text, str(path)), str(path))


def _judged(path: Path, entry: Line, catalog: Catalog) -> Standing:
    from trainwright.plan.of_line import plan_of

    claim = claim_of(path)
    try:
        return judge(claim, plan_of(entry, catalog).id)
    except Failure:  # the line has no plan today
        return Standing(state="stale", date=claim.date[:10])


def _same_line(proof: Any, plan: Plan) -> bool:
    """Whether a proof, as it was read, is of the line that a plan follows from, whatever the plan was then; lines are
    proven on linux/amd64."""
    base = proof.get("base") if isinstance(proof, dict) else None
    same = ("cuda", "flavour", "framework", "python", "version")
    return (
        plan.platform == AMD64
        and isinstance(base, dict)
        and base.get("os") == plan.base.os
        and all(proof.get(key) == getattr(plan, key) for key in same)
    )


def _place() -> Path:
    roots = f"{images_dir()}\0{own_catalog()}"
    return cache_dir() / "standings" / f"{hashlib.sha256(roots.encode()).hexdigest()[:32]}.json"


def _kept(place: Path, key: str) -> dict[str, Standing]:
    with suppress(RequestError, MisfitError, KeyError, TypeError, AttributeError):
        data = read_state(place)
        if data["key"] == key:
            return {name: read_record(Standing, row) for name, row in data["rows"].items()}
    return {}


def _key(proofs: Iterable[Path]) -> str:
    """A digest of the times and sizes of the files that plans follow from: the catalog, our code, and the proofs."""
    own = own_catalog()
    code = Path(__file__).parents[1]
    folders = [images_dir(), templates_dir(), *([own] if own is not None else []), code / "plan", code / "catalog"]
    digest = hashlib.sha256()
    for path, stat in sorted(
        [*((str(path), path.stat()) for path in proofs), *_stats(folders)], key=lambda row: row[0]
    ):
        digest.update(f"{path}\0{stat.st_mtime_ns}\0{stat.st_size}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _stats(folders: Iterable[Path | str]) -> Iterator[tuple[str, os.stat_result]]:
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != "__pycache__":
                        yield from _stats([entry.path])
                else:
                    with suppress(OSError):
                        yield entry.path, entry.stat()
