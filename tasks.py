"""What `./invoke` offers in a checkout: the verbs of Trainwright, and what its developers run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from trainwright.cli.flags import CatalogFlag, verb
from trainwright.cli.program import answer, checked, run, say, use_catalog
from trainwright.core.records import Field, Words
from trainwright.verbs.find import find

if TYPE_CHECKING:
    from invoke.collection import Collection


class CheckFlag(Words):
    """The flag of what makes files anew."""

    check: bool = Field(default=False, description="change nothing; fail where a file would change")


class TestFlags(Words):
    """The flags of ``test``."""

    fast: bool = Field(default=False, description="only what needs no container engine")
    select: str | None = Field(default=None, description="only tests whose name holds this expression")
    mutants: str | None = Field(
        default=None, description="plant faults in these modules (plan/conflict,…, or all) and count what no test sees"
    )
    seed: int = Field(default=1, description="with --mutants: which sample (default: 1)")
    sample: int = Field(default=0, description="with --mutants: how many faults, all modules together (default: all)")


@verb
def test(flags: TestFlags) -> None:
    """Lint, types, unit tests, then the real builds."""
    if flags.mutants:
        from devtools.mutants import FLOOR, run_mutants

        run_mutants(flags.mutants, seed=flags.seed, sample=flags.sample, floor=FLOOR, say=say)
        return
    from devtools.checks import run_tests

    run_tests(fast=flags.fast, select=flags.select)


@verb
def generate(flags: CheckFlag) -> None:
    """Write the generated files again: Dockerfiles, JSON schemas, the pipeline."""
    from devtools.generated import generate as make

    make(check=flags.check)


class LockLinesFlags(CatalogFlag):
    """The flags of ``lock-lines``."""

    framework: str | None = Field(default=None, description="only lines of this framework")
    cuda: str | None = Field(default=None, description="only lines of this CUDA version")
    version: str | None = Field(default=None, description="only lines of this version of the framework")
    check: bool = Field(default=False, description="change nothing; fail where a lock does not fit its line any more")


@verb
def lock_lines(flags: LockLinesFlags) -> None:
    """Pin every Python package of the image lines, with hashes, from the configured index."""
    from trainwright.lock.refresh import refresh_locks

    use_catalog(flags.catalog)
    refresh_locks(flags.framework, flags.cuda, flags.version, check=flags.check, say=say)


class NewComponentFlags(CatalogFlag):
    """The flags of ``new-component``."""

    name: str = Field(description="of the component: flash-attn")


@verb
def new_component(flags: NewComponentFlags) -> None:
    """Create the files of a new component. Commands refuse them until they are filled in."""
    from devtools.scaffold import new_component as make

    make(flags.name, flags.catalog, say=say)


class NewLineFlags(CatalogFlag):
    """The flags of ``new-line``."""

    like: str | None = Field(default=None, description="the image line to begin from: images/pytorch/cu126")
    version: str | None = Field(default=None, description="of the framework in the new line: 2.7.0")


@verb
def new_line(flags: NewLineFlags) -> None:
    """Create an image line from another one. Commands refuse its file until it is filled in."""
    from devtools.scaffold import new_line as make

    make(flags.like, flags.version, flags.catalog, say=say)


@verb
def refresh_instances(flags: CheckFlag) -> None:
    """Update the table of instance types from the packages that know them (needs the package index)."""
    from devtools.refresh_instances import refresh_instances as make

    make(check=flags.check)


class SuitesFlags(Words):
    """The flags of ``suites``."""

    image: str = Field(description="tag or id of an image that the engine has")
    suites: tuple[str, ...] = Field(
        default=(),
        alias="suite",
        description="NAME=FOLDER: a suite of devtools/suites.yaml and its checkout",
    )
    env: tuple[str, ...] = Field(default=(), description="NAME=VALUE in the container (may be repeated)")
    packages: str | None = Field(default=None, description="a folder with pytest, made by pip install --target FOLDER")


@verb
def suites(flags: SuitesFlags) -> None:
    """Run other people's test suites in an image, and say which failures are explained (devtools/suites.yaml)."""
    from devtools.suites import run_suites

    answer(run_suites(flags.image, flags.suites, flags.packages, flags.env, say=say))


class RefreshDlcFlags(CheckFlag):
    """The flags of ``refresh-dlc``."""

    facts: str | None = Field(
        default=None,
        description="newer YAML files of AWS's image documents, comma-separated (default: what was recorded)",
    )


@verb
def refresh_dlc(flags: RefreshDlcFlags) -> None:
    """Update the table of AWS's Deep Learning Containers (needs the package index)."""
    from pathlib import Path

    from devtools.refresh_dlc import refresh_dlc as make

    make([Path(name) for name in flags.facts.split(",")] if flags.facts else [], check=flags.check)


def _all() -> Collection:
    from trainwright.cli.tasks import VerbTask
    from trainwright.verbs.namespace import namespace

    for each in (test, lock_lines, new_component, new_line, refresh_instances, refresh_dlc, suites, generate):
        namespace.add_task(VerbTask(each))
    return namespace


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], find, _all, checkout=True))

namespace = checked(_all())  # for plain `invoke`
