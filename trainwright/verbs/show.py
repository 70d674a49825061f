"""Documents as text for people. Plain columns: they can be read, piped and pasted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainwright.core.layout import size, table
from trainwright.plan.plan import Plan, PlannedComponent


def listing_text(document: dict[str, Any]) -> str:
    """The text of ``list``."""
    if "lines" in document:
        rows: list[tuple[str, ...]] = [
            ("framework", "version", "cuda", "python", "base", "kind", "needs", "status", "options")
        ]
        rows += [(*(str(r[k]) for k in rows[0][:-1]), ",".join(r["options"])) for r in document["lines"]]
        return table(rows)
    if "components" in document:
        found = [("component", "providers", "what it is")]
        for row in document["components"]:
            providers = [f"{p} {_versions(v)}".strip() for p, v in row["providers"].items() if p != "base"]
            found.append((row["name"], ", ".join(providers), row["summary"]))
        return table(found)
    if not document["images"]:
        return "No image was built here yet. ./invoke build --framework pytorch --cuda cpu makes one in about a minute."
    rows = [("image", "size", "build", "smoke", "built", "tag")]
    rows += [
        (
            r["image_id"][7:19],
            size(r["size_bytes"]),
            f"{r['seconds']:.0f} s",
            r["smoke"],
            r["built_at"][:16],
            r["tags"][0],
        )
        for r in document["images"]
    ]
    return table(rows)


def _versions(versions: Sequence[str]) -> str:
    """A few versions as they are, many as the first and the last; --json has all of them."""
    return "/".join(versions) if len(versions) < 5 else f"{versions[0]} to {versions[-1]} ({len(versions)})"


def plan_text(plan: Plan) -> str:
    """The text of ``plan``."""
    cuda = "CPU only" if plan.cuda == "cpu" else f"CUDA {plan.cuda}"
    lines = [
        f"{plan.framework} {plan.version}, {cuda}, Python {plan.python}, on {plan.base.image or plan.base.os}",
        f"plan {plan.id}",
        "",
        table(
            [("component", "version", "provider", "download")]
            + [(c.name, c.version, c.provider, _download(c, unlocked=plan.unlocked)) for c in plan.components]
        ),
        "",
        *(f"tag   {tag}" for tag in plan.tags),
        *(f"note  {notice}" for notice in plan.notices),
    ]
    return "\n".join(lines)


def _download(component: PlannedComponent, *, unlocked: bool) -> str:
    if component.packages and unlocked:
        return f"no lock: {', '.join(component.packages)}"
    known = sum(s.size or 0 for s in component.sources)
    return size(known) if known else "-"


def explain_text(document: dict[str, Any]) -> str:
    """The text of ``explain``."""
    blocks = [f"plan {document['plan']}"]
    for row in document["components"]:
        block = [f"{row['name']} {row['version']} from {row['provider']}: {row['why']}"]
        if row["packages"]:
            shown = ", ".join(row["packages"][:6])
            more = f" and {len(row['packages']) - 6} more" if len(row["packages"]) > 6 else ""
            block.append(f"  packages  {shown}{more} ({size(row['download_bytes'])})")
        block += [f"  evidence  {e['source']} ({e['date']}): {e['says']}" for e in row["evidence"]]
        if row["rebuilds"]:
            block.append(f"  a change builds the layers of {', '.join(row['rebuilds'])} again")
        blocks.append("\n".join(block))
    blocks += [f"note: {notice}" for notice in document["notices"]]
    return "\n\n".join(blocks)


def build_text(document: dict[str, Any]) -> str:
    """The text of a finished ``build``: image, ledger, what to do next."""
    rows = [("component", "seconds", "bytes", "")]
    rows += [
        (r["name"], f"{r['seconds']:.1f}", size(r["bytes"]), "cached" if r["cached"] else "")
        for r in document["components"]
    ]
    smoke = document["smoke"]
    proof = "probe passed" + (f", {smoke['passed']} smoke tests passed" if smoke and not smoke["failed"] else "")
    lines = [
        table(rows),
        "",
        f"image   {document['image_id'][7:19]}  {size(document['size_bytes'])} in {document['seconds']:.0f} s, {proof}",
        *(f"tag     {tag}" for tag in document["tags"]),
        *([f"pushed  {document['pushed']}"] if document["pushed"] else []),
        f"record  {document['record']}",
    ]
    if smoke is None:
        lines.append(f"next    ./invoke smoke --image {document['tags'][0]}")
    return "\n".join(lines)


def stages_text(document: dict[str, Any]) -> str:
    """The text of ``build --stages``."""
    done = f"{document['steps']} steps, {document['cached_steps']} of them from the cache, {document['seconds']:.0f} s"
    return f"stages  {', '.join(document['stages'])}: {done}"


def pipeline_text(document: dict[str, Any]) -> str:
    """The text of ``pipeline``: what is shared, what is built, which files say so."""
    group_of = {name: group["name"] for group in document["groups"] for name in group["images"]}
    rows = [("image", "takes shared stages from", "request")]
    rows += [(image["name"], group_of.get(image["name"], "-"), image["request"]) for image in document["images"]]
    lines = [f"{group['name']}  {', '.join(group['stages'])}" for group in document["groups"]]
    return "\n".join([table(rows), "", *lines, *(f"file  {name}" for name in document["files"])])


def lock_text(document: dict[str, Any]) -> str:
    """The text of ``lock``: what changed, or with ``--check`` what differs."""
    rows = [(r["state"], r["kind"], r["name"], r["locked"] or "-", r["now"] or "-") for r in document["rows"]]
    # The first lock of a plan is all news; the file itself is the better thing to read.
    few = rows if len(rows) <= 60 else [*rows[:20], ("...", f"{len(rows) - 20} more", "", "", "")]
    lines = [table([("state", "kind", "name", "locked", "now"), *few]), ""] if rows else []
    return "\n".join([*lines, f"lock    {document['path']}", *([] if rows else ["nothing differs"])])


def mirror_text(document: dict[str, Any]) -> str:
    """The text of ``mirror pull``."""
    counts = ", ".join(f"{count} {kind}" for kind, count in document["kinds"].items() if count)
    return "\n".join(
        [
            f"mirror  {document['folder']}  {document['files']} files, {size(document['bytes'])}: {counts}",
            f"next    ./invoke build --site {document['site']} --locked ...",
        ]
    )


def smoke_text(document: dict[str, Any]) -> str:
    """The text of a passed ``smoke``."""
    rows = [(r["outcome"], r["component"], r["check"], f"{r['seconds']:.1f} s", r["reason"]) for r in document["rows"]]
    counts = ", ".join(f"{document[k]} {k}" for k in ("passed", "failed", "skipped"))
    return f"{table(rows)}\n\n{document['image']}: {counts} in {document['seconds']:.0f} s"


def doctor_text(document: dict[str, Any]) -> str:
    """The text of ``doctor``: a line per check, a remedy under each that needs one."""
    lines = []
    for finding in document["findings"]:
        lines.append(f"{finding['severity']:8}{finding['check']}: {finding['message']}")
        if finding["severity"] != "ok" and finding["remedy"]:
            lines += [f"        {line}" for line in finding["remedy"].splitlines()]
    return "\n".join(lines)
