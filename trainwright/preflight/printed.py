"""What a job's expressions of metrics look for, and what the script prints."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.sagemaker.log_search import certain
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at

NEVER = Rule(
    code="TW526",
    severity="warning",
    title="a metric's regular expression contains a word that the script never prints (an error if the tuner uses it)",
    source="AWS's developer guide, Define Training Metrics: the service searches the job's log with the expression; "
    "a tuning job whose objective is not found fails",
    remedy="Print the metric with that word, or change the expression in `metrics`.",
)
RULES = (NEVER,)
# Packages that print no metrics by themselves.
_SILENT = {
    *("torch", "torchvision", "torchaudio", "torch_xla", "numpy", "pandas", "PIL", "scipy", "boto3", "botocore"),
    *("smdistributed", "smdebug", "horovod", "sagemaker_training", "accelerate", "datasets", "tqdm", "yaml", "s3fs"),
    *("psutil", "timm", "einops", "safetensors", "tokenizers", "sentencepiece", "pyarrow", "cv2", "albumentations"),
}
_WORD = re.compile(r"[a-z]+(?:[_:@-][a-z]+)*")
_PART = re.compile(r"[a-z]+")
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
            what = f"the expression {expression!r} of {name} contains {word!r}, which the script does not print"
            yield at(NEVER, (entry, entry.tree), what, severity="error" if by_it else None)
            break


def _silent(code: ScriptFacts) -> bool:
    """Return whether all that the script imports is known to print no metrics."""
    own = {"", *(module.path.stem for module in code.modules)}  # an import of a neighbour begins with a dot
    roots = {target.partition(".")[0] for module in code.modules for target in module.aliases.values()}
    return all(root in _SILENT or root in own or root in sys.stdlib_module_names for root in roots)


def _texts(code: ScriptFacts) -> list[str]:
    """Return every string of the script in lower case, also the parts of formatted ones."""
    nodes = (node for module in code.modules for node in module.nodes)
    return [n.value.lower() for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _names(code: ScriptFacts) -> set[str]:
    """Return every name, attribute and keyword of the script in lower case: a log line may consist of them."""
    nodes = [node for module in code.modules for node in module.nodes]
    return {str(getattr(n, key)).lower() for n in nodes for key in ("id", "attr", "arg") if getattr(n, key, None)}


def _words(expression: str) -> list[str]:
    """Return the words, in lower case, that every text contains in which an expression finds something."""
    return [word for word in _WORD.findall(certain(expression)) if len(word) >= _SHORTEST]
