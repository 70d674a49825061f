"""The toolkit's ``matching_args`` on Python 3.11 and newer: restore_argspec.sh on what upstream has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainwright.core.paths import templates_dir

SCRIPT = templates_dir() / "components/sagemaker-toolkit/restore_argspec.sh"
# aws/sagemaker-training-toolkit, 48bcc8e6, src/sagemaker_training/functions.py, the lines concerned.
UPSTREAM = """\
from __future__ import absolute_import

import inspect
import sys
from typing import Callable

def getargspec(fn):
        full_arg_spec = inspect.getfullargspec(fn)
        return inspect.ArgSpec(
            full_arg_spec.args, full_arg_spec.varargs, full_arg_spec.varkw, full_arg_spec.defaults
        )
"""


def run(folder: Path, text: str) -> str:
    file = folder / "sagemaker_training/functions.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    subprocess.run(["sh", str(SCRIPT), str(folder)], check=True)
    return file.read_text()


def test_upstream_s_file_fails_without_it() -> None:
    names: dict[str, Any] = {}
    exec(UPSTREAM, names)
    with pytest.raises(AttributeError, match="ArgSpec"):
        names["getargspec"](lambda a: a)


def test_the_fields_are_those_of_python_3_10(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    exec(run(tmp_path, UPSTREAM), names)
    found = names["getargspec"](lambda a, b=2, *rest, **more: None)  # noqa: ARG005
    assert found._asdict() == {"args": ["a", "b"], "varargs": "rest", "keywords": "more", "defaults": (2,)}


def test_a_release_that_does_without_is_left_alone(tmp_path: Path) -> None:
    other = UPSTREAM.replace("inspect.ArgSpec", "inspect.FullArgSpec")
    assert run(tmp_path, other) == other
