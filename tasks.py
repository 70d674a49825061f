"""What `./invoke` offers in a checkout: the verbs of Trainwright, and what its developers run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from trainwright.cli.flags import CatalogFlag, Family, Shelf, Verb, verb
from trainwright.cli.output import answer, say
from trainwright.cli.program import checked, run
from trainwright.core.paths import use_catalog
from trainwright.core.records import Field, Words
from trainwright.verbs.find import FAMILIES, find

if TYPE_CHECKING:
    from invoke.collection import Collection


class CheckFlag(Words):
    """The flag of what makes files anew."""

    check: bool = Field(default=False, description="change nothing; fail where a file would change")


class TestFlags(Words):
    """The flags of ``test``."""

    examples: ClassVar[tuple[str, ...]] = (
        "test --fast",
        "test --select conflict",
    )

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
        from devtools.mutant_scores import keep
        from devtools.mutants import FLOOR, run_mutants

        run_mutants(flags.mutants, seed=flags.seed, sample=flags.sample, floor=FLOOR, say=say, keep=keep)
        return
    from devtools.checks import run_tests

    run_tests(fast=flags.fast, select=flags.select)


@verb
def generate(flags: CheckFlag) -> None:
    """Write the generated files: Dockerfiles, JSON schemas, docs."""
    from devtools.generated import generate as make

    make(check=flags.check)


class LockLinesFlags(CatalogFlag):
    """The flags of ``lock-lines``."""

    examples: ClassVar[tuple[str, ...]] = (
        "lock-lines --framework pytorch --version 2.6.0",
        "lock-lines --check",
    )

    framework: str | None = Field(default=None, description="only lines of this framework")
    cuda: str | None = Field(default=None, description="only lines of this CUDA version")
    version: str | None = Field(default=None, description="only lines of this version of the framework")
    platform: str | None = Field(
        default=None,
        description="only their locks for this platform (default: those that there are)",
        values=("linux/amd64", "linux/arm64"),
    )
    check: bool = Field(default=False, description="change nothing; fail where a lock does not fit its line any more")


@verb
def lock_lines(flags: LockLinesFlags) -> None:
    """Pin every Python package of the image lines, with hashes."""
    from trainwright.lock.refresh import refresh_locks
    from trainwright.plan.request import read_platform

    use_catalog(flags.catalog)
    platform = None if flags.platform is None else read_platform(flags.platform)
    refresh_locks(flags.framework, flags.cuda, flags.version, platform=platform, check=flags.check, say=say)


class NewComponentFlags(CatalogFlag):
    """The flags of ``new-component``."""

    examples: ClassVar[tuple[str, ...]] = ("new-component peft",)

    name: str = Field(description="of the component: peft")


@verb
def new_component(flags: NewComponentFlags) -> None:
    """Create the files of a new component, to be filled in."""
    from devtools.scaffold import new_component as make

    make(flags.name, flags.catalog, say=say)


class NewLineFlags(CatalogFlag):
    """The flags of ``new-line``."""

    examples: ClassVar[tuple[str, ...]] = ("new-line --like images/pytorch/cu126 --version 2.7.0",)

    like: str | None = Field(default=None, description="the image line to begin from: images/pytorch/cu126")
    version: str | None = Field(default=None, description="of the framework in the new line: 2.7.0")


@verb
def new_line(flags: NewLineFlags) -> None:
    """Create an image line from another one, to be filled in."""
    from devtools.scaffold import new_line as make

    make(flags.like, flags.version, flags.catalog, say=say)


@verb
def refresh_instances(flags: CheckFlag) -> None:
    """Update the table of instance types (needs the package index)."""
    from devtools.refresh_instances import refresh_instances as make

    make(check=flags.check)


class SuitesFlags(Words):
    """The flags of ``suites``."""

    examples: ClassVar[tuple[str, ...]] = ("suites IMAGE --suite toolkit=../sagemaker-training-toolkit",)

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
    """Run other people's test suites in an image.

    devtools/suites.yaml says which failures are explained.
    """
    from devtools.suites import run_suites

    answer(run_suites(flags.image, flags.suites, flags.packages, flags.env, say=say))


class ArchivesFlags(CatalogFlag):
    """The flags of ``archives``."""

    examples: ClassVar[tuple[str, ...]] = ("archives --clone NVIDIA/gdrcopy=../gdrcopy --write ../artifacts",)

    clones: tuple[str, ...] = Field(
        default=(),
        alias="clone",
        description="OWNER/NAME=PATH: a repository on GitHub and its clone (may be repeated)",
    )
    write: str | None = Field(default=None, description="a folder for the archives, to be named with --artifacts")


@verb
def archives(flags: ArchivesFlags) -> None:
    """Hold the catalog's checksums against archives made from clones.

    GitHub's archives of tags are made anew from git repositories on this machine.
    """
    from pathlib import Path

    from devtools.upstream_archives import compare
    from trainwright.catalog.catalog import open_catalog

    use_catalog(flags.catalog)
    answer(compare(open_catalog(), flags.clones, Path(flags.write) if flags.write else None, say=say))


class RefreshDlcFlags(CheckFlag):
    """The flags of ``refresh-dlc``."""

    facts: str | None = Field(
        default=None,
        description="newer YAML files of AWS's image documents, comma-separated (default: what was recorded)",
    )
    clone: str | None = Field(
        default=None,
        description="a clone of aws/deep-learning-containers: what its Dockerfiles install, for images not known yet",
    )


@verb
def refresh_dlc(flags: RefreshDlcFlags) -> None:
    """Update the table of AWS's containers (needs the package index)."""
    from pathlib import Path

    from devtools.refresh_dlc import refresh_dlc as make

    facts = [Path(name) for name in flags.facts.split(",")] if flags.facts else []
    make(facts, clone=Path(flags.clone) if flags.clone else None, check=flags.check)


OWN: dict[str, Verb[Any]] = {
    each.name: each
    for each in (test, generate, new_line, new_component, lock_lines, refresh_instances, refresh_dlc, suites, archives)
}
SHELF = Shelf((*FAMILIES, Family("Maintainers", tuple(OWN))), lambda name: OWN.get(name) or find(name))


def _all() -> Collection:
    from trainwright.cli.tasks import VerbTask
    from trainwright.verbs.namespace import namespace

    for each in OWN.values():
        namespace.add_task(VerbTask(each))
    return namespace


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], SHELF, _all, checkout=True))

namespace = checked(_all(), SHELF)  # for plain `invoke`
