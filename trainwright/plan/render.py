"""The Dockerfile of a plan from its components' templates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import jinja2

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.image_line import BASE, version_key
from trainwright.catalog.tools import load_tools
from trainwright.core.errors import RequestError, nearest
from trainwright.core.paths import cache_dir, templates_dir
from trainwright.plan.dockerfile import diagram
from trainwright.plan.plan import CODE, CONSTRAINTS, JOB_CONSTRAINTS, PLAN_LABEL, Base, Plan, PlannedComponent
from trainwright.plan.template_faults import REMEDY, template_faults
from trainwright.site.apt_sources import DEBIAN_SUITES

# The default time stamp of files made in a build: 2023-11-14, an arbitrary constant.
EPOCH = 1_700_000_000
WIDTH = 150  # characters of a filled line: mounts, packages, labels
# Variables that come last: the entry point, which changes often, and bash's start-up file, which inspects the machine
# that runs the image and must not run during the build. The constraints are for jobs; the build does not use them.
LATE_ENVIRONMENT = frozenset({"SAGEMAKER_PROGRAM", "SAGEMAKER_SUBMIT_DIRECTORY", "BASH_ENV", *JOB_CONSTRAINTS})
# Python 3.6 comes with pip 9 or 18, which support only manylinux1 wheels; 3.7 with pip 19.3 or newer.
OLDEST_GOOD_PIP = (3, 7)
# The macros of a component's template that the skeleton calls.
MACROS = ("stages", "layer", "imports", "residue", "on_base", "interpreter", "interpreter_copy")
# The program that installs packages, in stages alone.
INTO_LAYER = "/opt/tools/into-layer "


def render(plan: Plan, catalog: Catalog) -> str:
    """The part that makes the image, also of a plan that may lack a lock or an id: its id is computed from this."""
    environment = _environment(tuple(catalog.template_folders()))
    shared: dict[str, Any] = {"plan": plan, "user": plan.user, "epoch": EPOCH}
    parts: list[dict[str, Any]] = []
    early = {"interpreter": "", "interpreter_copy": ""}
    for component in plan.components:
        with template_faults(f"{component.name}/Dockerfile.j2"):
            template = environment.get_template(f"{component.name}/Dockerfile.j2")
            module = template.make_module(shared)
            _check_macros(template, module)
            row = {"name": component.name, "version": component.version, "provider": component.provider}
            if component.provider == BASE:
                # The base image has it already; a few components need changes to it.
                if changed := _call(module, "on_base", component):
                    parts.append({**row, "stages": "", "layer": "", "imports": "", "residue": changed})
                continue
            made = {m: _call(module, m, component) for m in ("stages", "layer", "imports", "residue")}
            if INTO_LAYER in made["residue"]:
                raise RequestError(
                    f"{template.filename}: macro residue: packages are installed in macro layer(c)", remedy=REMEDY
                )
            parts.append(row | made)
            early = {macro: text or _call(module, macro, component) for macro, text in early.items()}
    first, baked = _split(plan.environment)
    # In a Deep Learning Container packages go into its own interpreter, whose bytecode is left as it is.
    layered = plan.base.kind != "dlc"
    # All packages but the user's: one that is there may be loaded by those before it, such as yaml by the toolkit's.
    compiled = layered and any(part["imports"] for part in parts)
    packages = [n for n, part in enumerate(parts) if part["layer"] and part["name"] != "user"]
    last = max(packages, default=0) if compiled else len(parts)
    parts = [{**part, "late": n > last} for n, part in enumerate(parts)]
    with template_faults("Dockerfile.j2"):
        text = environment.get_template("Dockerfile.j2").render(
            shared,
            components=parts,
            layered=layered,
            imports=" ".join(part["imports"] for part in parts if part["imports"]) if layered else "",
            constraints=CONSTRAINTS,
            **early,
            python=plan.component("python"),
            run_packages=system_packages(plan, "run"),
            tools_packages=_tools_packages(plan),
            old_pip=version_key(plan.python) < OLDEST_GOOD_PIP,
            old_python=version_key(plan.python) < version_key(load_tools().uv.python),
            build_packages=system_packages(plan, "build"),
            archives=[archive for c in plan.components for archive in c.archives],
            components_with_wheels=[c for c in plan.components if c.wheel_archives],
            sdist_components=[c for c in plan.components if c.sdists and not c.own_stage],
            environment=first,
            baked_environment=baked,
            labels={name: value for name, value in plan.labels.items() if name != PLAN_LABEL},
        )
    text = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return text.replace("@@diagram@@", diagram(text))


def _split(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables that are set first, and those that are set last; PATH gets the folder of code only at the end."""
    first = {k: v for k, v in environment.items() if k not in LATE_ENVIRONMENT}
    baked = {k: v for k, v in environment.items() if k in LATE_ENVIRONMENT}
    own, _, rest = first.get("PATH", "").partition(":")
    if own == CODE:
        baked = {"PATH": f"{CODE}:${{PATH}}", **baked}
        first = {**first, "PATH": rest} if rest != "${PATH}" else {k: v for k, v in first.items() if k != "PATH"}
    return first, baked


def render_question(base: Base, starts: Mapping[str, str]) -> str:
    """The Dockerfile that queries apt in a base image (``templates/apt/``).

    Args:
        base: of the plan.
        starts: folder of questions -> what it starts from: ``base`` or ``${BUILD_IMAGE}``.
    """
    environment = _environment((templates_dir() / "apt", templates_dir()))
    text = environment.get_template("ask.Dockerfile.j2").render(plan={"base": base}, starts=starts)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates of earlier runs: compiling takes longer than all else that ``render`` does."""

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Take a compiled template; one that is damaged is compiled again."""
        try:
            super().load_bytecode(bucket)
        except Exception:  # a damaged pickle may raise anything
            bucket.reset()

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        """Keep a compiled template; where nothing can be written it is compiled again next time."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


def _environment(search: tuple[Path, ...]) -> jinja2.Environment:
    compiled: Path | None
    try:
        compiled = cache_dir() / "templates"
        compiled.mkdir(exist_ok=True)
    except (OSError, RequestError):  # no home, or it cannot be written
        compiled = None
    return _loaded(search, compiled)


@lru_cache(maxsize=4)  # jinja2 loads changed templates anew
def _loaded(search: tuple[Path, ...], compiled: Path | None) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(search),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701 - a Dockerfile, not HTML
        keep_trailing_newline=True,
        bytecode_cache=_Compiled(str(compiled)) if compiled else None,
    )
    environment.filters["pairs"] = _pairs
    environment.filters["filled"] = lambda text, indent=4: _filled(text.split(), indent)
    environment.filters["debian_suite"] = lambda os_name: DEBIAN_SUITES[os_name]
    return environment


def _check_macros(template: jinja2.Template, module: Any) -> None:
    """Refuse a macro whose name resembles one of ours: it would be ignored silently."""
    for name in vars(module):
        if name not in MACROS and not name.startswith("_") and (near := _nearest_macro(name)):
            raise RequestError(
                f"{template.filename}: macro {name!r} is never called. Did you mean {near[0]}?", remedy=REMEDY
            )


@lru_cache  # the templates of one process have the same few macros of their own
def _nearest_macro(name: str) -> list[str]:
    return nearest(name, MACROS, 1)


def _call(module: Any, macro: str, component: PlannedComponent) -> str:
    """A component's macro, or None."""
    made = getattr(module, macro, None)
    return "" if made is None else re.sub(r"\n{2,}", "\n", str(made(component))).strip()


def system_packages(plan: Plan, kind: Literal["run", "build"]) -> list[str]:
    """The packages of the distribution that are named for the image (``run``), or for what compiles (``build``)."""
    names = {name for c in plan.components for name in getattr(c.system, kind)}
    if kind == "build" and any(c.archives for c in plan.components):
        # Amazon Linux has a smaller curl that conflicts with the package curl; both contain this file.
        names |= {"ca-certificates", "/usr/bin/curl" if plan.base.family == "dnf" else "curl"}
    if plan.base.kind == "nvidia":
        # NVIDIA's images lack them. Build stages start from another image, so they need them as well.
        names |= {"ca-certificates"} if kind == "run" else set(system_packages(plan, "run")) if names else set()
    return sorted(names)


def _tools_packages(plan: Plan) -> list[str]:
    """The distribution packages that `python -m venv` needs, and strip, with which layers of packages are trimmed."""
    named = {c.values.get("venv_package") for c in plan.components}
    return sorted({name for name in named if name} | (set() if plan.base.kind == "dlc" else {"binutils"}))


def _pairs(values: dict[str, str], filled: bool = False) -> str:
    """The arguments of ENV or LABEL, one per line or as many as fit."""
    pairs = [f"{key}={_quote(value)}" for key, value in values.items()]
    return _filled(pairs, 4) if filled else " \\\n    ".join(pairs)


def _filled(words: Sequence[str], indent: int) -> str:
    """Words on continued lines of at most ``WIDTH`` characters; the text before them is as wide as the indent."""
    lines: list[str] = []
    for word in words:
        if lines and indent + len(lines[-1]) + len(word) + len("  \\") <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return f" \\\n{' ' * indent}".join(lines)


def _quote(value: str) -> str:
    """A value for ENV or LABEL. ``$`` is escaped, as the builder would expand it, except in ``${PATH}``."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("\\${PATH}", "${PATH}")
    return escaped if re.fullmatch(r"[A-Za-z0-9_./:@+-]+", value) else f'"{escaped}"'
