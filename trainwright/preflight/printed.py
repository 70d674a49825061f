"""What a job's expressions of metrics look for, and what the script prints."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from re import _parser as parser  # type: ignore[attr-defined]

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.script_facts import ScriptFacts
from trainwright.preflight.syntax import at

NEVER = Rule(
    code="TW526",
    severity="warning",
    title="the expression of a metric looks for a word that the script has nowhere (an error: the tuner goes by it)",
    source="AWS's developer guide, Define Training Metrics: the service searches the job's log with the expression; "
    "a tuning job whose objective is not found fails",
    remedy="Print the metric as its expression has it, or change the expression in `metrics`.",
)
RULES = (NEVER,)
# Packages that print nothing by themselves that an expression is written for.
_SILENT = {
    *("torch", "torchvision", "torchaudio", "torch_xla", "numpy", "pandas", "PIL", "scipy", "boto3", "botocore"),
    *("smdistributed", "smdebug", "horovod", "sagemaker_training", "accelerate", "datasets", "tqdm", "yaml", "s3fs"),
    *("psutil", "timm", "einops", "safetensors", "tokenizers", "sentencepiece", "pyarrow", "cv2", "albumentations"),
}
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_:@-][A-Za-z0-9]+)*")
_PART = re.compile(r"[A-Za-z]+")
_SHORTEST = 3  # letters of a word that says something


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    job, entry = code.job, code.script.entry
    if job is None or entry is None or code.incomplete or not code.backwards or not _silent(code):
        return
    texts, names = _texts(code), _names(code)
    parts = {part for text in (*texts, *names) for part in _PART.findall(text)}
    for name, expression in job.metrics.items():
        for word in _words(expression):
            made = _PART.findall(word)  # `f"{split}_{name}"` may make it
            if any(word in text for text in texts) or word in names or (len(made) > 1 and parts.issuperset(made)):
                continue
            by_it = job.tuner is not None and job.tuner.metric == name
            what = f"{expression!r} of the metric {name} looks for {word!r}, which the script does not print"
            yield at(NEVER, (entry, entry.tree), what, severity="error" if by_it else None)
            break


def _silent(code: ScriptFacts) -> bool:
    """Whether all that the script imports is known to print no metrics."""
    own = {"", *(module.path.stem for module in code.modules)}  # an import of a neighbour begins with a dot
    roots = {target.partition(".")[0] for module in code.modules for target in module.aliases.values()}
    return all(root in _SILENT or root in own or root in sys.stdlib_module_names for root in roots)


def _texts(code: ScriptFacts) -> list[str]:
    """Every text in the script, also the parts of formatted ones."""
    nodes = (node for module in code.modules for node in module.nodes)
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _names(code: ScriptFacts) -> set[str]:
    """Every name, attribute and keyword of the script: a log line may be made of them."""
    nodes = [node for module in code.modules for node in module.nodes]
    return {str(getattr(n, key)) for n in nodes for key in ("id", "attr", "arg") if getattr(n, key, None)}


def _words(expression: str) -> list[str]:
    """The words that each text has in which an expression finds something."""
    try:
        parsed = parser.parse(expression)
    except re.error:
        return []
    if parsed.state.flags & re.IGNORECASE:
        return []
    return [word for word in _WORD.findall(_literal(parsed)) if len(word) >= _SHORTEST]


def _literal(parsed: Iterator[tuple[object, object]]) -> str:
    """The characters of an expression that stand for themselves; a space for all that does not."""
    return "".join(chr(int(str(value))) if str(kind) == "LITERAL" else " " for kind, value in parsed)
