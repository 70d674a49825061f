"""The files of a pipeline in each format: writes them, or compares them with existing ones."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from trainwright.catalog.catalog import Catalog
from trainwright.core.errors import RequestError, did_you_mean
from trainwright.core.owned import check_replaceable, claim, write_atomically
from trainwright.core.records import Document
from trainwright.core.say import Say
from trainwright.pipeline import buildspec, github, gitlab, gpu_smoke, kubernetes
from trainwright.pipeline.batch import MOST, REHEARSALS, batch, jobs_of, proof_batch, split
from trainwright.pipeline.images import ChosenImage, choose, lines_to_prove
from trainwright.pipeline.sharing import Group, SharedImage, groups
from trainwright.pipeline.text import dump
from trainwright.scan.database import EXPORT
from trainwright.site.site import Site

Format = Literal["buildspec", "batch", "bake", "github", "gitlab", "kubernetes"]
OUTPUTS = {
    "buildspec": "buildspec.yml",
    "batch": "buildspec-batch.yml",
    "bake": "bake",
    "github": ".github/workflows/trainwright.yml",
    "gitlab": ".gitlab-ci.yml",
    "kubernetes": "kubernetes",
}
PHASES_FILE = OUTPUTS["buildspec"]
MARK = "# Made by `./invoke pipeline"  # the first line of every file that is written
STAGES_FILE = "buildspec-stages.yml"
TAGS_FILE = "buildspec-tags.yml"
NIGHTLY_FILE = "buildspec-nightly.yml"
PROOFS_FILE = "buildspec-proofs.yml"
GPU_FOLDER = "gpu-smoke"
# The defaults of a single build: the smallest image, with the rehearsal of most images.
FIRST = {"FRAMEWORK": "pytorch", "CUDA": "cpu", **REHEARSALS["pytorch"]}


class PipelineImage(Document):
    """An image of a pipeline, and the request that it stands for."""

    name: str
    request: str
    plan: str


class PipelineGroup(Document):
    """Build stages that several images have in common; those of ``parent`` are among them."""

    name: str
    images: tuple[str, ...]
    stages: tuple[str, ...]
    parent: str | None


class PipelineDocument(Document):
    """``pipeline --json``."""

    schema: Literal["trainwright/pipeline/1"]
    format: Format
    files: tuple[str, ...]
    images: tuple[PipelineImage, ...]
    groups: tuple[PipelineGroup, ...]


def pipeline(
    words: str | None,
    catalog: Catalog,
    *,
    kind: str,
    output: str | None,
    catalog_folder: str | None,
    check: bool,
    cache: Sequence[str] = (),
    proofs: bool = False,
    gpus: int = 0,
    say: Say,
) -> PipelineDocument:
    """Write the files of a pipeline, or look whether they are as they would be written.

    Args:
        words: of ``--images``.
        catalog: the catalog.
        kind: one of ``OUTPUTS``.
        output: the file (for ``bake`` and ``kubernetes`` the folder), relative to the working folder, which is the
            root of the source.
        catalog_folder: the user's own catalog, as the command line names it.
        check: write nothing.
        cache: for ``bake``: registry caches, as for ``build --cache``.
        proofs: a buildspec that proves lines and pushes nothing; ``words`` are then those of ``prove``.
        gpus: for CodeBuild and ``kubernetes``: how many GPUs the smoke test of an image with CUDA gets.
        say: progress callback.

    Returns:
        The document of ``pipeline --json``.

    Raises:
        RequestError: the format or an image is unknown; with ``check``, a file is missing or stale.
    """
    if kind not in OUTPUTS:
        raise RequestError(f"--format {kind}: invalid. {did_you_mean(kind, OUTPUTS)}")
    _check_flags(kind, proofs=proofs, gpus=gpus)
    if kind == "bake":
        return _bake(words, catalog, output=output or OUTPUTS[kind], check=check, cache=cache, say=say)
    if cache:
        raise RequestError(
            f"--cache: only for --format bake, not {kind}", remedy="The jobs take it from the variable CACHE."
        )
    target = output or (PROOFS_FILE if proofs else OUTPUTS[kind])
    if Path(target).is_absolute() or ".." in Path(target).parts:
        raise RequestError(
            f"--output {target}: the service reads it from the source",
            remedy="Name a file in the working folder, the root of the source.",
        )
    if not check and kind != "kubernetes":
        check_replaceable(Path(target), target, mark=MARK)
    # The files are for other machines: nothing of this one's site may end up in them.
    images = [] if proofs else choose(words, catalog, Site())
    shared = shared_groups(images, catalog)
    flags = "".join(f" --{flag} {value}" for flag, value in (("images", words), ("catalog", catalog_folder)) if value)
    how = "--proofs" if proofs else f"--format {kind}"
    how += f" --gpus {gpus}" if gpus else ""
    command = f"./invoke pipeline {how}{flags}" + (f" --output {output}" if output else "")
    if proofs:
        images = lines_to_prove(words, catalog)
        values = {"command": command, "catalog": catalog_folder or "", "first": FIRST, "line": "pytorch/cpu"}
        text = buildspec.render("proofs.yml.j2", {**values, "batch": dump(proof_batch(images))})
        texts = {target: text}
    else:
        texts = contents(
            images,
            shared,
            kind=kind,
            target=target,
            command=command,
            catalog_folder=catalog_folder or "",
            words=words or "",
            gpus=gpus,
        )
    stale = [change for name, text in texts.items() if (change := _change(Path(name), text))]
    if check and stale:
        raise RequestError("\n".join(stale), remedy=f"{command} writes it again.")
    if not check:
        for name in texts:
            check_replaceable(Path(name), name, mark=MARK)
        for name, text in texts.items():
            write_atomically(Path(name), text)
    return _document(cast(Format, kind), list(texts), images, shared)


def _check_flags(kind: str, *, proofs: bool, gpus: int) -> None:
    """Refuse flags that another format has."""
    if proofs and kind != "buildspec":
        raise RequestError(f"--proofs --format {kind}: there is one format", remedy="Leave --format out.")
    if gpus and (proofs or kind not in ("buildspec", "batch", "kubernetes")):
        raise RequestError(
            f"--gpus: only for CodeBuild and Kubernetes, not {'--proofs' if proofs else f'--format {kind}'}",
            remedy="Elsewhere, `./invoke smoke` uses the GPUs of the machine it runs on.",
        )
    if gpus < 0:
        raise RequestError(f"--gpus {gpus}: not a number of GPUs", remedy="For example: --gpus 1")


def _bake(
    words: str | None,
    catalog: Catalog,
    *,
    output: str,
    check: bool,
    cache: Sequence[str],
    say: Say,
) -> PipelineDocument:
    """Write a bake file with its contexts; they are of this machine's site, as a build of it would be."""
    if check:
        raise RequestError(
            "--format bake --check: a bake file has its contexts beside it and is not meant to be committed",
            remedy="./invoke pipeline --format bake writes both again.",
        )
    from trainwright.pipeline.bake import KIND, write_bake
    from trainwright.site.site import load_site
    from trainwright.sources.fetch import first_use
    from trainwright.sources.gather import gather_locked

    claim(Path(output), KIND, f"--output {output}")  # before anything is fetched
    site = load_site()
    images = choose(words, catalog, site)
    inputs = []
    for image in images:
        flags = image.request.flags()
        inputs.append(first_use(gather_locked(image.plan, catalog, site, flags, strict=False), say=say))
    path = write_bake(inputs, Path(output), cache=cache, say=say)
    return _document("bake", [str(path)], images, shared_groups(images, catalog))


def _document(
    kind: Format, files: Sequence[str], images: Sequence[ChosenImage], shared: Sequence[Group]
) -> PipelineDocument:
    return PipelineDocument(
        schema="trainwright/pipeline/1",
        format=kind,
        files=tuple(files),
        images=tuple(
            PipelineImage(name=image.name, request=image.request.flags(), plan=image.plan.id) for image in images
        ),
        groups=tuple(
            PipelineGroup(name=each.name, images=tuple(each.images), stages=tuple(each.stages), parent=each.parent)
            for each in shared
        ),
    )


def default_files(catalog: Catalog) -> dict[str, str]:
    """Name and content of the files in this project's own repository."""
    images = choose(None, catalog, Site())
    shared = shared_groups(images, catalog)
    command = "./invoke pipeline --format buildspec"
    return contents(images, shared, kind="buildspec", target=PHASES_FILE, command=command)


def shared_groups(images: Sequence[ChosenImage], catalog: Catalog) -> list[Group]:
    """What images of a pipeline share."""
    from trainwright.plan.rendered import render_dockerfile

    return groups([SharedImage(image.name, image.plan, render_dockerfile(image.plan, catalog)) for image in images])


def contents(
    images: Sequence[ChosenImage],
    shared: Sequence[Group],
    *,
    kind: str,
    target: str,
    command: str,
    catalog_folder: str = "",
    words: str = "",
    gpus: int = 0,
) -> dict[str, str]:
    """Name and content of the files of a format.

    Beside the buildspec of images are that of shared stages, that of the last job, and the nightly one, which asks what
    of ``words`` is stale.
    """
    stages_file, tags_file = (str(Path(target).with_name(name)) for name in (STAGES_FILE, TAGS_FILE))
    # Kubernetes gives GPUs to a Job of its own.
    gpu_folder = str(Path(target).with_name(GPU_FOLDER)) if gpus and kind != "kubernetes" else ""
    tests = gpu_smoke.files(images, folder=gpu_folder, gpus=gpus, command=command) if gpu_folder else {}
    if kind == "batch":
        parts, path, texts = split(images, shared), Path(target), {}
        phases_file = str(path.with_name(PHASES_FILE))
        for number, (some, theirs) in enumerate(parts, 1):
            own = {"stages_file": stages_file, "tags_file": tags_file, "phases_file": phases_file}
            graph = batch(some, theirs, **own, gpu_folder=gpu_folder)
            of = f" Part {number} of {len(parts)}: a batch has at most {MOST} jobs." if len(parts) > 1 else ""
            text = f"# Made by `{command}`; docs/pipeline.md says what it does.{of}\n{dump({'version': 0.2, **graph})}"
            name = str(path.with_stem(f"{path.stem}-{number}")) if len(parts) > 1 else target
            buildspec.check(text, name)
            texts[name] = text
        return texts | tests
    if kind == "github":
        return {target: github.workflow(images, shared, command=command, catalog=catalog_folder)}
    if kind == "gitlab":
        return {target: gitlab.pipeline_file(images, shared, command=command, catalog=catalog_folder)}
    if kind == "kubernetes":
        return kubernetes.files(images, shared, folder=target, command=command, catalog=catalog_folder, gpus=gpus)
    values = {"command": command, "catalog": catalog_folder, "first": FIRST}
    if jobs_of(len(images), len(shared)) > MOST:
        raise RequestError(
            f"--images: {len(images)} images, {len(shared)} groups of shared stages and the job that moves the tags; a "
            f"batch of CodeBuild has at most {MOST} jobs",
            remedy=f"{command.replace('--format buildspec', '--format batch')} writes several batches.",
        )
    graph = batch(images, shared, stages_file=stages_file, tags_file=tags_file, gpu_folder=gpu_folder)
    return tests | {
        target: buildspec.render("buildspec.yml.j2", {**values, "batch": dump(graph)}),
        stages_file: buildspec.render("stages.yml.j2", values),
        tags_file: buildspec.render("tags.yml.j2", values),
        str(Path(target).with_name(NIGHTLY_FILE)): buildspec.render(
            "nightly.yml.j2", {**values, "words": words, "osv": EXPORT}
        ),
    }


def _change(path: Path, text: str) -> str:
    current = path.read_text() if path.is_file() else ""
    if current == text:
        return ""
    change = "\n".join(difflib.unified_diff(current.splitlines(), text.splitlines(), lineterm="", n=0))
    indented = "\n".join(f"    {line}" for line in change[:1500].splitlines())
    return f"{path} is {'stale' if current else 'missing'}:\n{indented}"
