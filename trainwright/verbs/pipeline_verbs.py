"""The verb about pipelines. Thin and typed, as those of :mod:`trainwright.verbs.namespace`."""

from __future__ import annotations

from invoke.context import Context

from trainwright.cli.program import CATALOG_HELP, JSON_HELP, answer, print_json, say, use_catalog, verb


@verb(
    help={
        "images": "lines, as pytorch, pytorch:cu124, pytorch-2.6.0-cu124 or 'pytorch-*-debian', comma-separated "
        "(default: the supported ones)",
        "format": "buildspec (default), batch or bake",
        "output": "the file to write, of bake the folder (default: buildspec.yml, buildspec-batch.yml, bake)",
        "check": "write nothing; fail where a file is missing or would change",
        "cache": "of bake: a registry cache, read and written; further ones are only read (may be repeated)",
        "catalog": CATALOG_HELP,
        "json": JSON_HELP,
    },
    iterable=["cache"],
)
def pipeline(
    c: Context,
    *,
    images: str | None = None,
    format: str = "buildspec",
    output: str | None = None,
    check: bool = False,
    cache: list[str] | None = None,
    catalog: str | None = None,
    json: bool = False,
) -> None:
    """Write the CodeBuild buildspec, a batch graph or a bake file of image lines."""
    from trainwright.catalog.catalog import load_catalog
    from trainwright.pipeline import pipeline
    from trainwright.verbs import show

    use_catalog(catalog)
    document = pipeline.pipeline(
        images,
        load_catalog(),
        kind=format,
        output=output,
        catalog_folder=catalog,
        check=check,
        cache=tuple(cache or ()),
        say=say,
    )
    if json:
        print_json(document)
    else:
        answer(show.pipeline_text(document))
