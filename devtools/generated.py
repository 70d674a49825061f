"""Files that are made from others and checked in: golden Dockerfiles, schemas, the pipeline, the infrastructure."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path

from devtools.infra import infra_template
from trainwright.build.render import render_dockerfile
from trainwright.catalog.catalog import Catalog, load_catalog
from trainwright.catalog.image_line import Line
from trainwright.core.errors import RequestError
from trainwright.core.findings import rules_markdown
from trainwright.core.owned import write_atomically
from trainwright.estimator.check import RULES as JOB_RULES
from trainwright.pipeline.pipeline import default_files
from trainwright.plan.extend import extended
from trainwright.plan.request import make_request
from trainwright.plan.resolve import resolve
from trainwright.preflight.preflight import RULES
from trainwright.sagemaker.diagnosis import load_causes
from trainwright.verbs.documents import DOCUMENTS

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


def expected_files() -> dict[Path, str]:
    """Path and content of every generated file."""
    everything = load_catalog()
    files: dict[Path, str] = {}
    for entry in everything.lines:
        line = entry.line
        # Of several lines for one version and CUDA, a request takes one; each is to be seen.
        catalog = Catalog([entry], everything.components, everything.rules)
        kinds = [("", None, None), *((f"-{option}", option, None) for option in line.options), *_bases(entry)]
        for suffix, with_, base in kinds:
            request = make_request(
                framework=line.framework, cuda=line.cuda, version=line.version, with_=with_, base=base
            )
            text = render_dockerfile(resolve(request, catalog), catalog)
            files[GOLDEN / f"{line.framework}-{entry.path.stem}{suffix}.Dockerfile"] = text
    for name, model in DOCUMENTS.items():
        schema = json.dumps(model.model_json_schema(by_alias=True), indent=1, sort_keys=True)
        files[ROOT / "trainwright" / "schemas" / f"{name}.schema.json"] = schema + "\n"
    files[ROOT / "docs" / "findings.md"] = _findings_page()
    files[ROOT / "infra" / "trainwright.yaml"] = infra_template()
    files |= {ROOT / name: text for name, text in default_files(everything).items()}
    return files


def _findings_page() -> str:
    """``docs/findings.md``: what each code means, and what `diagnose` knows."""
    intro = (
        "# Findings\n\n"
        "Made from the rules by `./invoke generate`. A comment silences a finding at its line, and has to say why:\n"
        "`# trainwright: ignore[TW150] the loss decides whether to stop`.\n\n"
    )
    causes = [
        "## Causes that `./invoke diagnose` knows\n",
        "| cause | certainty | what it is | how it is known |",
        "| --- | --- | --- | --- |",
        *(
            f"| {c.id} | {c.certainty} | {c.cause} | {c.source} |".replace("{", "").replace("}", "")
            for c in load_causes()
        ),
    ]
    tables = [
        rules_markdown("What `./invoke preflight` finds", RULES),
        rules_markdown("What `./invoke estimator` finds", JOB_RULES),
    ]
    return intro + "\n".join([*tables, *causes]) + "\n"


def _bases(entry: Line) -> list[tuple[str, str | None, str | None]]:
    """That a line of AWS's can start from AWS's own container, too."""
    line = entry.line
    return [("-dlc", None, "dlc")] if line.base.kind == "nvidia" and line.preferred and extended(entry) else []


def generate(*, check: bool) -> None:
    """Write the generated files, or fail where one would change.

    Raises:
        RequestError: with ``check``: a file is stale, missing, or no longer generated.
    """
    files = expected_files()
    gone = [path for path in GOLDEN.glob("*") if path not in files]
    faults = [f"{path.relative_to(ROOT)} is not generated any more" for path in gone]
    for path in () if check else gone:
        path.unlink()
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
