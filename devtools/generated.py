"""Files made from others and checked in: Dockerfiles, schemas, the pipeline, the infrastructure, transcripts."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from bench.goals import with_goals
from bench.measured import PAGE as BENCHMARKS
from bench.shown import with_fleet
from devtools.architecture import PAGE, architecture_page
from devtools.infra import AD_HOC, GPU, REGISTRY, REPLICA, UPLOAD, infra_template
from devtools.menu import PAGE as MENU
from devtools.menu import menu_page
from devtools.pictures import pictures
from devtools.proofs_table import with_proofs
from devtools.reference import catalog_page, exit_codes_page, schemas_page
from devtools.rule_examples import rule_examples
from devtools.schemas import schema_of
from devtools.transcripts import PAGES as TRANSCRIPTS
from devtools.transcripts import with_transcripts
from devtools.variants import expectations, shipped_dockerfiles
from trainwright.build.store import BuildRecord, BuiltDocument
from trainwright.catalog.component import Component
from trainwright.catalog.image_line import LineFile
from trainwright.catalog.incompatibilities import RuleBook
from trainwright.catalog.listing import ComponentsDocument, ListDocument
from trainwright.core.errors import RequestError
from trainwright.core.findings import FindingsDocument, Rule, rules_markdown
from trainwright.core.findings_baseline import Baseline
from trainwright.core.layout import json_lines
from trainwright.core.owned import write_atomically
from trainwright.core.paths import images_dir, templates_dir
from trainwright.core.records import Record
from trainwright.doctor.doctor import DoctorDocument
from trainwright.estimator.check import RULES as JOB_RULES
from trainwright.estimator.estimate import EstimatorDocument
from trainwright.fleet.report import RunReportDocument
from trainwright.fleet.summary import FleetDocument
from trainwright.fresh.documents import FreshDocument
from trainwright.lock.documents import ExportDocument, LockDocument, MirrorDocument
from trainwright.pipeline.pipeline import PipelineDocument, default_files
from trainwright.pipeline.remote_record import RemoteBuildDocument
from trainwright.pipeline.take_results import TakenDocument
from trainwright.plan.explain import ExplainDocument
from trainwright.plan.plan_lock import PlanLock
from trainwright.plan.project import ProjectFile
from trainwright.plan.rendered import proof_stages
from trainwright.plan.totals import PlanDocument
from trainwright.preflight.explain import EXAMPLES, RuleDocument, rule_section
from trainwright.preflight.preflight import RULES
from trainwright.proofs.proof import LineProof
from trainwright.prove.smoke import SmokeDocument
from trainwright.push.documents import AheadDocument, PromoteDocument, PushDocument
from trainwright.push.gc import GcDocument
from trainwright.push.tagging import TagsDocument
from trainwright.rehearse.documents import RehearsalDocument
from trainwright.report.documents import CatalogDocument, Comparison, ReportDocument
from trainwright.sagemaker.causes import load_causes
from trainwright.sagemaker.diagnosis import DiagnosisDocument
from trainwright.sagemaker.job import Job
from trainwright.scan.allow import AllowFile
from trainwright.scan.documents import ScanDocument
from trainwright.signing.verify import VerifyDocument
from trainwright.sources.survey import SourcesDocument
from trainwright.verbs.documents import (
    BuildDocument,
    ConflictDocument,
    DryRunDocument,
    FailureDocument,
    RenderDocument,
    StagesDocument,
    StayDocument,
)
from trainwright.verbs.prove import ProveDocument
from trainwright.verbs.sign import SignDocument

# Name of a schema -> the record that the verb prints; of the last ones, the file that is read.
DOCUMENTS: dict[str, type[Record]] = {
    "plan": PlanDocument,
    "lock-export": ExportDocument,
    "locked": LockDocument,
    "mirror": MirrorDocument,
    "record": BuildRecord,
    "failure": FailureDocument,
    "conflict": ConflictDocument,
    "list": ListDocument,
    "components": ComponentsDocument,
    "render": RenderDocument,
    "sources": SourcesDocument,
    "prove": ProveDocument,
    "proof": LineProof,
    "built": BuiltDocument,
    "explain": ExplainDocument,
    "build": BuildDocument,
    "dry-run": DryRunDocument,
    "stages": StagesDocument,
    "stay": StayDocument,
    "remote-build": RemoteBuildDocument,
    "fleet": FleetDocument,
    "pipeline": PipelineDocument,
    "smoke": SmokeDocument,
    "taken": TakenDocument,
    "push": PushDocument,
    "push-ahead": AheadDocument,
    "tags": TagsDocument,
    "promote": PromoteDocument,
    "sign": SignDocument,
    "verify": VerifyDocument,
    "gc": GcDocument,
    "scan": ScanDocument,
    "fresh": FreshDocument,
    "rehearsal": RehearsalDocument,
    "doctor": DoctorDocument,
    "findings": FindingsDocument,
    "rule": RuleDocument,
    "estimator": EstimatorDocument,
    "diagnosis": DiagnosisDocument,
    "report": ReportDocument,
    "run-report": RunReportDocument,
    "catalog": CatalogDocument,
    "diff": Comparison,
    "plan-lock": PlanLock,
    "baseline": Baseline,
    "job": Job,
    "line": LineFile,
    "component": Component,
    "rules": RuleBook,
    "allow": AllowFile,
    "trainwright.toml": ProjectFile,
}
# The files that people write, by the name of their schema.
WRITTEN = {
    "trainwright.toml": "`trainwright.toml`",
    "job": "A job: `job.yaml`",
    "line": "An image line: `images/<framework>/<line>/line.yaml`",
    "component": "A component: `templates/components/<name>/component.yaml`",
    "rules": "Rules: `templates/rules.yaml`",
    "allow": "Vulnerabilities that are accepted: `--allow FILE` of `scan`",
    "baseline": "Known findings: `--baseline FILE` of `preflight` and `estimator`",
}
ROOT = Path(__file__).resolve().parent.parent
PROVEN = ROOT / "docs" / "proven.md"
SCHEMAS = ROOT / "trainwright" / "schemas"
# https://github.com/redhat-developer/yaml-language-server, "Using inlined schema".
MODELINE = "# yaml-language-server: $schema="
VARIANTS = ROOT / "tests" / "unit" / "plan" / "variants"
OF_SCRIPTS = """\
# Rules for training scripts

What `./invoke preflight` finds. Generated from the rules and from `tests/corpus/` by `./invoke generate`. In the
examples `-` is the mistake and `+` the right way; they show the changed lines of a longer script. Where the mistake is
in the job, they show its keys; comments are lines of the script or of requirements.txt that it is about.

"""
OF_JOBS = """\
# Rules for job files

What `./invoke estimator` finds. Generated from the rules and from `tests/corpus/jobs/` by `./invoke generate`. In the
examples `-` is the mistake and `+` the right way; they show a part of a longer job file. Comments in them say with
which flag the job is checked, and what is in its other files or its image.

"""
FINDINGS = """\
# Findings

Generated from the rules by `./invoke generate`. A comment with a reason silences a finding on its line:
`# trainwright: ignore[TW150] the loss decides whether to stop`. A job file has `silence`, with a reason for each code.
`./invoke preflight --explain CODE` shows a rule with its fix, its source and an example, as do the pages with the
[rules for training scripts](rules.md) and the [rules for job files](job-rules.md).

"""


def expected_files() -> dict[Path, str]:
    """Path and content of every generated file."""
    everything, made = shipped_dockerfiles()
    end = proof_stages()  # the same in each, so it is in none of the files
    files = {entry.path.with_name("Dockerfile"): plain.removesuffix(end) for entry, plain, _ in made}
    variants = [each for _, _, of_line in made for each in of_line]
    files |= {VARIANTS / name: text for name, text in expectations(variants).items()}
    schemas = {name: {"$id": f"urn:trainwright:schema:{name}"} | schema_of(model) for name, model in DOCUMENTS.items()}
    files |= {SCHEMAS / f"{name}.schema.json": json_lines(schema) + "\n" for name, schema in schemas.items()}
    files[ROOT / "docs" / "schemas.md"] = schemas_page(schemas, WRITTEN)
    files[ROOT / "docs" / "exit-codes.md"] = exit_codes_page()
    files[ROOT / "docs" / "catalog.md"] = catalog_page(everything)
    files |= {path: with_modeline(path, name) for name, paths in written_files().items() for path in paths}
    examples = rule_examples()
    files[EXAMPLES] = json.dumps(examples, indent=0, ensure_ascii=False) + "\n"
    files[ROOT / "docs" / "rules.md"] = _rules_page(OF_SCRIPTS, RULES, examples)
    files[ROOT / "docs" / "job-rules.md"] = _rules_page(OF_JOBS, JOB_RULES, examples)
    files[ROOT / "docs" / "findings.md"] = _findings_page()
    files |= {ROOT / page: with_transcripts((ROOT / page).read_text()) for page in TRANSCRIPTS}
    files[PROVEN] = with_proofs(PROVEN.read_text(), everything)
    files[BENCHMARKS] = with_fleet(with_goals(BENCHMARKS.read_text()))
    files[MENU] = menu_page()
    files |= pictures()
    files[PAGE] = architecture_page(PAGE.read_text())
    files[ROOT / "infra" / "trainwright.yaml"] = infra_template()
    files[ROOT / "infra" / "adhoc.yaml"] = infra_template(AD_HOC)
    files[ROOT / "infra" / "replica.yaml"] = infra_template(REPLICA)
    files[ROOT / "infra" / "upload.yaml"] = infra_template(UPLOAD)
    files[ROOT / "infra" / "gpu.yaml"] = infra_template(GPU)
    files[ROOT / "infra" / "registry.yaml"] = infra_template(REGISTRY)
    files |= {ROOT / name: text for name, text in default_files(everything).items()}
    return files


def written_files() -> dict[str, list[Path]]:
    """The shipped files that people write in YAML, by the name of their schema."""
    return {
        "line": [*images_dir().glob("*/*/line.yaml")],
        "component": [*templates_dir().glob("components/*/component.yaml")],
        "rules": [templates_dir() / "rules.yaml"],
        "job": [*(ROOT / "examples").glob("*/job.yaml")],
    }


def with_modeline(path: Path, name: str) -> str:
    """The text of a file that people write, with the line on top that names its schema to editors."""
    text = path.read_text()
    place = Path(os.path.relpath(SCHEMAS, path.parent), f"{name}.schema.json")
    rest = text.partition("\n")[2] if text.startswith(MODELINE) else text
    return f"{MODELINE}{place}\n{rest}"


def _findings_page() -> str:
    """``docs/findings.md``: what each code means, and what `diagnose` knows."""
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
        rules_markdown("What `./invoke preflight` finds", RULES, "rules.md"),
        rules_markdown("What `./invoke estimator` finds", JOB_RULES, "job-rules.md"),
    ]
    return FINDINGS + "\n".join([*tables, *causes]) + "\n"


def _rules_page(intro: str, rules: Iterable[Rule], examples: dict[str, str]) -> str:
    """``docs/rules.md`` or ``docs/job-rules.md``: a section for each rule."""
    documents = [
        RuleDocument(schema="trainwright/rule/1", **rule.as_json(), example=examples.get(rule.code))
        for rule in sorted(rules, key=lambda rule: rule.code)
    ]
    return intro + "\n".join(rule_section(each) for each in documents)


def generate(*, check: bool) -> None:
    """Write the generated files, or fail where one would change.

    Raises:
        RequestError: with ``check``: a file is stale, missing, or no longer generated.
    """
    files = expected_files()
    made = (*images_dir().glob("*/*/Dockerfile"), *VARIANTS.glob("*"))
    gone = [path for path in made if path not in files]
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
