"""What differs between an image and its plan.

Nothing but the standard library is imported: the build step that proves an image reads this file, too
(:mod:`trainwright.prove.in_build`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

BASE = "base"  # the provider, as in trainwright.catalog.image_line, which is not there in a build step
SINGLE_LIBRARIES = ("libcudart", "libmpi", "libnccl")  # a second one on the loader path is an error
COMPILER_COMPONENTS = frozenset({"compiler", "cuda-compiler"})
ROOT_KEYS = "ssh keys of root"
# os-release calls some distributions by another name than images do.
_DISTRIBUTIONS = {"amzn": "amazonlinux"}


@dataclass(frozen=True)
class Difference:
    """One difference between image and plan."""

    component: str
    fact: str
    expected: str
    found: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.component}: {self.fact} should be {self.expected}, the image has {self.found}"


def differences(plan: Mapping[str, Any], found: Mapping[str, Any], *, in_build: bool = False) -> list[Difference]:
    """Every difference between the probe's result and the plan; an empty list is a proof.

    Args:
        plan: the plan's JSON.
        found: what :func:`trainwright.prove.probe.probe` returned.
        in_build: it was found in a build step, so nothing is said of labels: only a whole image has them.
    """
    return [
        *_facts(plan, found),
        *_packages(plan, found),
        *_unmet(plan, found),
        *_environment(plan, found),
        *(() if in_build else _labels(plan, found)),
        *_loader_path(found),
        *_intruders(plan, found),
        *_changes(plan, found),
    ]


def distribution(release: Mapping[str, str]) -> str:
    """The base as plans and labels spell it, from ``/etc/os-release``; empty if unknown."""
    name, version = release.get("ID", ""), release.get("VERSION_ID", "")
    return f"{_DISTRIBUTIONS.get(name, name)}-{version}" if name and version else ""


def _facts(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Expectations that the probes do not meet."""
    base = {c["name"] for c in plan.get("components", ()) if c.get("provider") == BASE}
    for expected in plan.get("expect", ()):
        component, fact, value = expected["component"], expected["fact"], str(expected["value"])
        facts = found.get("facts", {}).get(component, {})
        if fact in facts and fits(value, word(facts[fact])):
            continue
        if fact in facts:
            seen, remedy = word(facts[fact]), f"templates/components/{component} does not install what it declares."
        elif "error" in facts:
            seen = f"a probe that failed: {str(facts['error']).strip().splitlines()[-1]}"
            remedy = f"Fix what templates/components/{component} installs, or its probe in component.yaml."
        else:
            seen = "no such fact"
            remedy = f"The probe in templates/components/{component}/component.yaml did not find {fact}."
        if component in base:
            remedy = f"The base image has it: a later step, such as the user's packages, changed {component}."
        yield Difference(component, fact, value, seen, remedy)


def _packages(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Python distributions that are missing or whose version differs from the plan."""
    installed: Mapping[str, str] = found.get("distributions", {})
    for component in plan.get("components", ()):
        sources = (source.get("package") or "" for source in component.get("sources", ()))
        pinned = dict.fromkeys(p for p in (*component.get("packages", ()), *sources) if "==" in p)
        for requirement in pinned:
            name, _, version = requirement.partition("==")
            seen = installed.get(re.sub(r"[-_.]+", "-", name).lower())
            # Providers other than wheels may use a package without installing it as a distribution.
            if seen == version or (seen is None and not component.get("provider", "").endswith("wheel")):
                continue
            yield Difference(
                component["name"],
                f"Python package {name}",
                version,
                seen or "none",
                "A later layer changed the locked set (see ./invoke render); --with-requirements may only add.",
            )


def _unmet(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Requirements of Python packages that the image does not meet; those of a Deep Learning Container are AWS's."""
    if plan.get("base", {}).get("kind") == "dlc":
        return
    for line in found.get("unmet", ()):
        yield Difference(
            line.partition(" ")[0],
            "its requirements",
            "met",
            line,
            "Pin what is missing: packages or constraints of the image line, or your --with-requirements.",
        )


def _environment(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Variables of the plan that are missing in a container, and those that no image may set."""
    variables: Mapping[str, str] = found.get("environment", {})
    for name, value in plan.get("environment", {}).items():
        seen, (own, _, rest) = variables.get(name), value.partition("${PATH}")
        if seen != value and (own == value or seen is None or not (seen.startswith(own) and seen.endswith(rest))):
            yield Difference(
                "environment",
                name,
                value,
                variables.get(name, "nothing"),
                "The image's ENV lines come from the plan: build it again with ./invoke build.",
            )
    if "FI_PROVIDER" in variables and variables["FI_PROVIDER"] != found.get("base", {}).get("fi_provider"):
        yield Difference(
            "environment",
            "FI_PROVIDER",
            "unset",
            variables["FI_PROVIDER"],
            "Leave FI_PROVIDER out of the image: on an instance without EFA it hangs the job; "
            "the toolkit sets it where it is needed.",
        )


def _labels(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """Labels of the plan that are missing in the image, or that differ."""
    labels: Mapping[str, str] = found.get("image", {}).get("labels", {})
    for name, value in plan.get("labels", {}).items():
        if labels.get(name) != value:
            seen = labels.get(name, "nothing")
            yield Difference("labels", name, value, seen, "This image has another plan: ./invoke build makes it.")


def _loader_path(found: Mapping[str, Any]) -> Iterator[Difference]:
    """Libraries that appear twice on the loader path."""
    before = found.get("base", {}).get("duplicates", {})
    for library, files in sorted(found.get("duplicates", {}).items()):
        if library in SINGLE_LIBRARIES and files != before.get(library):
            yield Difference(
                "loader path",
                library,
                "one file",
                ", ".join(files),
                f"Remove all but one {library}: which one a process loads depends on the order of directories.",
            )


def _intruders(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """What no training image should contain: driver libraries, unrequested compilers, leftovers of the build."""
    before = found.get("base", {})
    for path in sorted({*found.get("driver_libraries", ())} - {*before.get("driver_libraries", ())}):
        yield Difference(
            "driver", path, "absent", "this file", "The host's driver provides this library; one in the image hides it."
        )
    providers = {component["name"]: component.get("provider") for component in plan.get("components", ())}
    components = set(providers)
    if not components & COMPILER_COMPONENTS:
        for name, path in sorted(found.get("compilers", {}).items()):
            if name in before.get("compilers", {}):
                continue
            yield Difference(
                "compilers",
                name,
                "absent",
                path,
                "A build package got into the final image: move it from apt.run to apt.build, or use --with compiler.",
            )
    for kind, every in sorted(found.get("left_overs", {}).items()):
        paths = [path for path in every if path not in before.get("left_overs", {}).get(kind, ())]
        if not paths or (kind == ROOT_KEYS and providers.get("ssh") == BASE):
            continue  # AWS's: hosts log in to each other with these
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        yield Difference(
            "left-overs", kind, "none", ", ".join(paths[:3]) + more, f"Remove the {kind} in the step that creates them."
        )


def _changes(plan: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Difference]:
    """What the image does not keep of its base: its layers, and its Python packages in their versions."""
    layers, below = found.get("image", {}).get("layers", []), found.get("base", {}).get("layers", [])
    if layers[: len(below)] != below:
        yield Difference(
            "base image",
            "layers",
            f"{len(below)} layers of the image that was looked at",
            "others",
            "The name of the base image led to another one during the build: build again.",
        )
    installed: Mapping[str, str] = found.get("distributions", {})
    sources = [s for c in plan.get("components", ()) if c["name"] != "user" for s in c.get("sources", ())]
    named = [s.get("package") or (s.get("file") or "").partition("-")[0] for s in sources]
    own = {re.sub(r"[-_.]+", "-", name.partition("==")[0]).lower() for name in named}
    allowed = {*own, *(plan.get("user") or {}).get("allow_change", ())}
    for name, version in sorted(found.get("base", {}).get("distributions", {}).items()):
        if installed.get(name) != version and name not in allowed:
            yield Difference(
                "base image",
                f"Python package {name}",
                version,
                installed.get(name, "none"),
                f"The user's packages changed {name} of the base image: leave it out of --with-requirements, or allow "
                f"it: --allow-change {name}",
            )


def word(value: Any) -> str:
    """A fact in the notation of component files: JSON's ``true`` and ``null``, text unchanged."""
    return value if isinstance(value, str) else json.dumps(value)


def fits(expected: str, seen: str) -> bool:
    """Equality, or a glob if the expectation contains a ``*``: ``3.11.*`` fits ``3.11.2``; ``3.11`` does not."""
    return fnmatchcase(seen, expected) if "*" in expected else seen == expected
