"""Pages of the reference that are made from the program: exit codes, schemas, image lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Any

from trainwright.catalog.catalog import Catalog
from trainwright.catalog.listing import lines
from trainwright.cli.program import INTERRUPTED
from trainwright.core import errors
from trainwright.plan.resolve import bare_of
from trainwright.proofs.expected import proven_sizes
from trainwright.proofs.standing import of_lines
from trainwright.report.markdown import lines_markdown

_CODES = """\
# Exit codes

Made from the program by `./invoke generate`. Every verb ends with one of these exit codes. With `--json`, a failure
is one document on standard output: `{"schema", "error", "message", "remedy", "exit_code", …}`; a conflict also has
`rows` and `offers`, and a failed build has `component`, `step`, `last_lines` and `log`. If lines of `build --images`
failed, the document is `trainwright/fleet/1`, and the exit code is that of all failed lines, or 5 if they differ; if
only their moving tags could not move, `moving` has the error and the command that moves them. `build --on codebuild`
ends with the exit code that the program had there; `phase`, `inside` (its own document), `build` and `record` say
more. [schemas.md](schemas.md) has the documents.

| code | `error` | what happened | where to look |
| --- | --- | --- | --- |
"""
_FOUND = (
    "`preflight` or `estimator` found errors (with `--strict`, or warnings), `scan` vulnerabilities that count, "
    "`fresh` stale lines; the document is `trainwright/findings/1`, `trainwright/estimator/1`, `trainwright/scan/1` or "
    "`trainwright/fresh/1`"
)
# Where the reader of a failure looks next: keys of its document, and pages.
_LOOK: dict[type[errors.Failure], str] = {
    errors.RequestError: "the message names the nearest valid word; `unlocked`; [locks](locks.md)",
    errors.Conflict: "`rows` say why (the smallest set of reasons), `offers` are command lines that work",
    errors.EngineError: "`./invoke doctor`; [engine](engine.md)",
    errors.BuildFailed: "the component, the step, its last 20 lines, the log",
    errors.ProofFailed: "the differences, one per line; of a budget `size_bytes`, `budget`, `components`",
    errors.RegistryRefused: "`cause`, `place`, `uri`, `pushed`, `promoted`, `deleted`; "
    "[push](push.md#the-order-and-what-is-left-when-it-breaks-off)",
    errors.SourceError: "`component`, `file`, `urls`, `expected`, `found`; "
    "[the artifact mirror](site.md#the-artifact-mirror), [mirrors](locks.md#a-mirror-for-places-without-a-network)",
    errors.RehearsalFailed: "`cause`, `host`, `rank`, `last_lines`, `checks`, `launches`, `report`; "
    "[the causes](rehearse.md#failures-it-knows)",
    errors.InternalError: "`report`: the file with the traceback, `.trainwright/crash-*.log` (in the temporary folder "
    "if that cannot be written). `TRAINWRIGHT_DEBUG=1` prints it as well",
}


def exit_codes_page() -> str:
    """``docs/exit-codes.md``; a class of failures that nobody has said anything of is a ``KeyError``."""
    kinds = sorted(_below(errors.Failure), key=lambda kind: kind.exit_code)
    rows = ["| 0 | - | fine | |", f"| 1 | - | {_FOUND} | the findings |"]
    rows += [f"| {kind.exit_code} | `{kind.kind}` | {_happened(kind)} | {_LOOK[kind]} |" for kind in kinds]
    rows.append(f"| {INTERRUPTED} | - | interrupted, but not during a build | |")
    return _CODES + "\n".join(rows) + "\n"


def _below(kind: type[errors.Failure]) -> Iterator[type[errors.Failure]]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from _below(each)


def _happened(kind: type[errors.Failure]) -> str:
    first, *_ = cleandoc(kind.__doc__ or "").split("\n\n")
    return _plain(first[0].lower() + first[1:]).removesuffix(".")


_SCHEMAS = """\
# Schemas

Made from the program by `./invoke generate`. Every file that people write and every document of `--json` has a JSON
schema in `trainwright/schemas/`, also in the installed package; its `$id` is `urn:trainwright:schema:NAME`. Within a
version of a document (`trainwright/plan/1`) keys are only added. The shipped files name their schema in the first
line, which editors with a YAML language server read.
"""


def schemas_page(schemas: Mapping[str, Mapping[str, Any]], written: Mapping[str, str]) -> str:
    """``docs/schemas.md``.

    Args:
        schemas: by name.
        written: the files that people write, by the name of their schema; these have a table of their keys.
    """
    text = [_SCHEMAS, "## Files that people write\n"]
    for name, file in written.items():
        required = schemas[name].get("required", ())
        text += [f"### {file}\n", f"`{name}.schema.json`, `{schemas[name]['$id']}`. Required keys are **bold**.\n"]
        text += ["| key | value | meaning |", "| --- | --- | --- |"]
        for key, field in schemas[name]["properties"].items():
            shown = f"**`{key}`**" if key in required else f"`{key}`"
            text.append(f"| {shown} | {_value(field)} | {_plain(field.get('description', ''))} |")
        text.append("")
    text += ["## Documents\n", "| schema | what it is | keys |", "| --- | --- | --- |"]
    for name in sorted(schemas.keys() - written.keys()):
        about = _plain(schemas[name].get("description", "").partition("\n\n")[0])
        keys = " ".join(f"`{key}`" for key in schemas[name]["properties"])
        text.append(f"| `{name}` | {about} | {keys} |")
    return "\n".join(text) + "\n"


def _value(field: Mapping[str, Any]) -> str:
    """What a key of a file holds, in a few words."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_value(each) for each in field["anyOf"] if each.get("type") != "null"))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        return f"list of {_value(field['items'])}" if field.get("items") else "list"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"name: {_value(field['additionalProperties'])}"
    words = {"string": "text", "boolean": "yes or no", "integer": "whole number", "object": "record"}
    return words.get(str(field.get("type")), str(field.get("type", "any")))


def _plain(text: str) -> str:
    """A docstring's text as a cell of a table."""
    code = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text.replace("``", "`"))
    return re.sub(r"\s+", " ", code).replace("|", "\\|").strip()


_CATALOG = """\
# Image lines

Made from `images/` and `proofs/` by `./invoke generate`. The first table has the newest published version of each
framework for a CUDA version, in **bold** what is proven. The others have every line: \\* marks what `--framework` alone
takes, and the size is that of the proven image, unpacked. `./invoke report --lines` shows the same with what was built
here.
"""


def catalog_page(catalog: Catalog) -> str:
    """``docs/catalog.md``: all lines, without what was built on this machine."""
    entries = list(catalog.lines)
    rows = lines(catalog, entries, of_lines(entries, catalog), proven_sizes(entries), bare_of(catalog)).lines
    return "\n\n".join([_CATALOG.rstrip(), *lines_markdown(rows)]) + "\n"
