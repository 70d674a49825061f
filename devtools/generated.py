"""Files that are made from others and checked in: golden Dockerfiles and the schemas of the JSON documents."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

from trainwright.catalog import load_catalog
from trainwright.documents import DOCUMENTS
from trainwright.errors import RequestError
from trainwright.paths import write_atomically
from trainwright.render import render_dockerfile
from trainwright.request import make_request
from trainwright.resolve import resolve

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


def expected_files() -> dict[Path, str]:
    """Path and content of every generated file."""
    catalog = load_catalog()
    files: dict[Path, str] = {}
    for entry in catalog.lines:
        line = entry.line
        for suffix, with_ in [("", None), *((f"-{option}", option) for option in line.options)]:
            request = make_request(framework=line.framework, cuda=line.cuda, version=line.version, with_=with_)
            text = render_dockerfile(resolve(request, catalog), catalog)
            files[GOLDEN / f"{line.framework}-{line.cuda_tag}{suffix}.Dockerfile"] = text
    for name, model in DOCUMENTS.items():
        schema = json.dumps(model.model_json_schema(by_alias=True), indent=1, sort_keys=True)
        files[ROOT / "trainwright" / "schemas" / f"{name}.schema.json"] = schema + "\n"
    return files


def generate(*, check: bool) -> None:
    """Write the generated files, or fail where one would change.

    Raises:
        RequestError: with ``check``: a file is stale, missing, or no longer generated.
    """
    files = expected_files()
    faults = [f"{path.relative_to(ROOT)} is not generated any more" for path in GOLDEN.glob("*") if path not in files]
    for path, text in files.items():
        current = path.read_text() if path.is_file() else ""
        if current == text:
            continue
        if not check:
            write_atomically(path, text)
            continue
        change = "\n".join(difflib.unified_diff(current.splitlines(), text.splitlines(), lineterm="", n=0))
        faults.append(f"{path.relative_to(ROOT)} is stale:\n{re.sub('(?m)^', '    ', change[:1500])}")
    if faults and check:
        raise RequestError("\n".join(faults), remedy="./invoke generate writes the generated files anew.")
