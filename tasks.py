"""What `./invoke` offers in a checkout: the verbs of Trainwright, and what its developers run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainwright.cli.program import CATALOG_HELP, checked, run, say, use_catalog, verb
from trainwright.verbs.namespace import namespace

if TYPE_CHECKING:
    from invoke.context import Context


@verb(help={"fast": "only what needs no container engine", "select": "only tests whose name holds this expression"})
def test(c: Context, fast: bool = False, select: str | None = None) -> None:
    """Lint, types, unit tests, then the real builds."""
    from devtools.checks import run_tests

    run_tests(fast=fast, select=select)


@verb(help={"check": "change nothing; fail where a file would change"})
def generate(c: Context, check: bool = False) -> None:
    """Make the generated files anew: Dockerfiles, JSON schemas, the pipeline."""
    from devtools.generated import generate as make

    make(check=check)


@verb(
    help={
        "framework": "only lines of this framework",
        "cuda": "only lines of this CUDA version",
        "version": "only lines of this version of the framework",
        "catalog": CATALOG_HELP,
        "check": "change nothing; fail where a lock does not fit its line any more",
    }
)
def lock_lines(  # noqa: PLR0917 - invoke passes flags by name
    c: Context,
    framework: str | None = None,
    cuda: str | None = None,
    version: str | None = None,
    catalog: str | None = None,
    check: bool = False,
) -> None:
    """Pin every Python package of the image lines, with hashes, from the configured index."""
    from trainwright.lock.refresh import refresh_locks

    use_catalog(catalog)
    refresh_locks(framework, cuda, version, check=check, say=say)


@verb(positional=["name"], help={"name": "of the component: flash-attn", "catalog": CATALOG_HELP})
def new_component(c: Context, name: str, catalog: str | None = None) -> None:
    """Begin a component: files to fill in, which nothing takes before they are."""
    from devtools.scaffold import new_component as make

    make(name, catalog, say=say)


@verb(
    help={
        "like": "the image line to begin from: images/pytorch/cu126",
        "version": "of the framework in the new line: 2.7.0",
        "catalog": CATALOG_HELP,
    },
)
def new_line(c: Context, like: str | None = None, version: str | None = None, catalog: str | None = None) -> None:
    """Begin an image line from another one: a file to fill in, which nothing takes before it is."""
    from devtools.scaffold import new_line as make

    make(like, version, catalog, say=say)


@verb(help={"check": "change nothing; fail where the file would change"})
def refresh_instances(c: Context, check: bool = False) -> None:
    """Make the table of instance types anew from the packages that know them (needs the package index)."""
    from devtools.refresh_instances import refresh_instances as make

    make(check=check)


@verb(
    help={
        "facts": "newer YAML files of AWS's image documents, comma-separated (default: what was recorded)",
        "check": "change nothing; fail where the file would change",
    }
)
def refresh_dlc(c: Context, facts: str | None = None, check: bool = False) -> None:
    """Make the table of AWS's Deep Learning Containers anew (needs the package index)."""
    from pathlib import Path

    from devtools.refresh_dlc import refresh_dlc as make

    make([Path(name) for name in facts.split(",")] if facts else [], check=check)


namespace.add_task(test)
namespace.add_task(lock_lines)
namespace.add_task(new_component)
namespace.add_task(new_line)
namespace.add_task(refresh_instances)
namespace.add_task(refresh_dlc)
namespace.add_task(generate)
namespace = checked(namespace)

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], lambda: namespace, checkout=True))
