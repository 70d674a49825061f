"""What finer layers of wheels would save: sizes in the locks, what lines share, and git's history of the locks.

Layers are taken for what their wheels weigh: an image of 2.94 GB, compressed, has wheels of 3.08 GB
(docs/benchmarks.md). What is not a wheel, such as AWS's builds of PyTorch, is not counted. A layer of its own for each
wheel is the finest split, so no other saves more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainwright.catalog.catalog import Catalog, load_catalog  # noqa: E402
from trainwright.core.layout import size, table  # noqa: E402
from trainwright.plan.identity import same_templates  # noqa: E402
from trainwright.plan.of_line import plan_of  # noqa: E402
from trainwright.plan.plan import Plan  # noqa: E402

LARGE, TINY = 10**9, 10**7  # bytes, compressed
Files = dict[str, int]  # the wheels of a layer: bytes by checksum
Known = tuple[list[str], dict[str, str]]  # of a line's image: its components, and the owners of packages


def owners_of(plan: Plan, catalog: Catalog) -> dict[str, str]:
    """The component in whose layer each package of an image is, by its name; empty for those of build stages."""
    found = {}
    for component in plan.components:
        provider = catalog.components[component.name].component.providers[component.provider]
        for source in component.sources:
            name, pinned, _ = (source.package or "").partition("==")
            if pinned:  # else an archive that apt fetches
                found[name] = "" if provider.building(name) else component.name
    return found


def layers_of(packages: Iterable[Mapping[str, Any]], own: Sequence[str], owners: Mapping[str, str]) -> dict[str, Files]:
    """The wheels of each component of a line's image, by its lock or an earlier one.

    Args:
        packages: of the lock.
        own: the components of the image, in their order.
        owners: of packages today. One that is gone was the first component's that needed it.
    """
    found: dict[str, Files] = defaultdict(dict)
    for package in packages:
        needed_by = [name for name in own if name in package.get("components", ())]
        if needed_by and (owner := owners.get(package["name"], needed_by[0])):
            found[owner][package["sha256"]] = package.get("size") or 0
    return dict(found)


def sent_again(before: Files, after: Files) -> tuple[int, int]:
    """The bytes of a change of a layer: as one layer, and with a layer for each wheel. Zeros if nothing came."""
    if before.keys() == after.keys():
        return 0, 0
    return sum(after.values()), sum(count for sha256, count in after.items() if sha256 not in before)


def revisions() -> Iterator[tuple[str, str]]:
    """(path, commit) of each version of a line's lock that git has, the oldest first."""
    words = ("log", "--reverse", "--format=commit %H", "--name-only", "--diff-filter=AM")
    commit = ""
    for line in filter(None, _git(*words, "--", "images/*/*/lock.json").splitlines()):
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        else:
            yield line, commit


def main() -> None:
    """Print the three tables."""
    catalog = load_catalog()
    with same_templates():
        plans = {entry.path.with_name("lock.json"): plan_of(entry, catalog) for entry in catalog.lines}
    known = {path: ([c.name for c in plan.components], owners_of(plan, catalog)) for path, plan in plans.items()}
    locked = {path: json.loads(path.read_text())["packages"] for path in plans if path.is_file()}
    layers = {path: layers_of(packages, *known[path]) for path, packages in locked.items()}
    print_sizes(layers)
    print_shared(layers)
    print_history(known, {name: folder.component.order for name, folder in catalog.components.items()})


def print_sizes(layers: Mapping[Path, Mapping[str, Files]]) -> None:
    """The large layers, with the largest wheel of each: no split makes smaller ones. How many are tiny."""
    rows = [("line", "layer", "compressed", "wheels", "largest wheel")]
    for path, own in layers.items():
        line = f"{path.parent.parent.name}/{path.parent.name}"
        for name, files in own.items():
            if sum(files.values()) > LARGE:
                rows.append((line, name, size(sum(files.values())), str(len(files)), size(max(files.values()))))
    every = [sum(files.values()) for own in layers.values() for files in own.values()]
    tiny = [count for count in every if count < TINY]
    print(f"More than {size(LARGE)}: {len(rows) - 1} of {len(every)} layers of {len(layers)} lines\n\n{table(rows)}\n")
    print(f"Less than {size(TINY)}: {len(tiny)} layers, {size(sum(tiny) / len(tiny))} on average\n")


def print_shared(layers: Mapping[Path, Mapping[str, Files]]) -> None:
    """What a registry holds that has all lines."""
    rows = [("layer", "lines", "different", "bytes", "of wheels")]
    by_name: dict[str, list[Files]] = defaultdict(list)
    for own in layers.values():
        for name, files in own.items():
            by_name[name].append(files)
    for name, found in sorted(by_name.items()):
        different = {frozenset(files): sum(files.values()) for files in found}
        wheels = {sha256: count for files in found for sha256, count in files.items()}
        whole, fine = sum(different.values()), sum(wheels.values())
        rows.append((name, str(len(found)), str(len(different)), size(whole), size(fine)))
    print(f"All lines in one registry, with a layer for each component, and for each wheel:\n\n{table(rows)}\n")


def print_history(known: Mapping[Path, Known], orders: Mapping[str, int]) -> None:
    """How often each layer changed from one version of a lock to the next, and what was sent again."""
    before: dict[str, dict[str, Files]] = {}
    chances: dict[str, int] = defaultdict(int)
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, commit in revisions():
        if ROOT / name not in known:
            continue
        now = layers_of(json.loads(_git("show", f"{commit}:{name}"))["packages"], *known[ROOT / name])
        was = before.get(name, {})
        for component in was.keys() & now.keys():
            chances[component] += 1
            if any(sent := sent_again(was[component], now[component])):
                changes[component].append(sent)
        before[name] = now
    rows = [("order", "layer", "changed", "of", "bytes", "of wheels")]
    for name in sorted(chances, key=lambda name: orders[name]):
        whole, fine = (sum(each[which] for each in changes[name]) for which in (0, 1))
        rows.append((str(orders[name]), name, str(len(changes[name])), str(chances[name]), size(whole), size(fine)))
    print(f"Changes of the lines' own images, in git's history of their locks:\n\n{table(rows)}")


def _git(*words: str) -> str:
    argv = ["git", "-C", str(ROOT), *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout  # noqa: S603 - argv is ours


if __name__ == "__main__":
    main()
