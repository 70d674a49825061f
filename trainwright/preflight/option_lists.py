"""Lists that a job passes as hyperparameters: each arrives as the text of a single argument."""

from __future__ import annotations

import ast
import re

from trainwright.core.findings import Rule
from trainwright.sagemaker.toolkit import TOOLKIT
from trainwright.script.call import Call

LISTED = Rule(
    code="TW512",
    severity="error",
    title="the job passes a list, which arrives as one argument and not as several",
    source=f"{TOOLKIT}, mapping.py, to_cmd_args: the value is str(value), so [0.9, 0.95] is one argument in brackets; "
    "argparse ends the job where type refuses it, or nargs needs more arguments",
    remedy='type=json.loads instead of nargs and type=float; of texts pass "a,b" and split it.',
)
_NUMBERS = ("int", "float")
_OF_NUMBERS = re.compile(r"^(?:Optional\[|typing\.)*[Ll]ist\[(int|float)\]")


def refusal(call: Call, value: object) -> str:
    """Return why an ``add_argument`` refuses a hyperparameter that is a list; nothing if it takes it."""
    kind, count = call.given("type"), call.constant("nargs")
    if not isinstance(value, list | tuple):
        return ""
    if isinstance(count, int) and count > 1:
        return f"expects {count} arguments, and gets one, {str(value)!r}"
    if isinstance(kind, ast.Name) and kind.id in _NUMBERS:
        return f"invalid {kind.id} value: {str(value)!r}"
    return ""


def refused_by_field(annotation: ast.expr, value: object) -> str:
    """Return why the field of a dataclass refuses a list in HfArgumentParser: ``list[int]`` is nargs="+", type=int."""
    found = _OF_NUMBERS.search(ast.unparse(annotation))
    return f"invalid {found[1]} value: {str(value)!r}" if found and isinstance(value, list | tuple) else ""
