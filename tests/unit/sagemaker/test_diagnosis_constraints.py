"""What pip and uv say where a constraint stands in the way: the constraint is named, and how the image carries it."""

from __future__ import annotations

import pytest

from trainwright.sagemaker.diagnosis import diagnose

_HELP = "https://pip.pypa.io/en/latest/topics/dependency-resolution/#dealing-with-dependency-conflicts"
# pip 23.2.1 with PIP_CONSTRAINT, for `torchvision==0.22.1`; its own test (tests/functional/test_new_resolver_errors.py)
# has the line of the constraint as well.
PIP = f"""\
ERROR: Cannot install torchvision==0.22.1 because these package versions have conflicting dependencies.

The conflict is caused by:
    torchvision 0.22.1 depends on torch==2.7.1
    The user requested (constraint) torch==2.13.0+cpu

To fix this you could try to:
1. loosen the range of package versions you've specified
2. remove package versions to allow pip attempt to solve the dependency conflict

ERROR: ResolutionImpossible: for help visit {_HELP}
"""
# uv 0.13.8 with UV_CONSTRAINT, for `numpy<2` and for `torchvision==0.22.1`.
UV = """\
error: No solution found when resolving dependencies
  cause: Because you require numpy<2 and numpy==2.4.6, we can conclude that your requirements are unsatisfiable.
"""
UV_IN_TURN = """\
error: No solution found when resolving dependencies
  cause: Because torchvision==0.22.1 depends on torch==2.7.1 and torch==2.13.0+cpu, we can conclude that \
torchvision==0.22.1 cannot be used.
         And because you require torchvision==0.22.1, we can conclude that your requirements are unsatisfiable.
"""
# uv's own test of `uv build --build-constraint` (crates/uv/tests/it/build.rs).
UV_BUILD = """\
  \N{MULTIPLICATION SIGN} Failed to build `project`
  ├─▶ Failed to resolve requirements from `build-system.requires`
  ├─▶ No solution found when resolving: `hatchling>=1.0`
  ╰─▶ Because you require hatchling>=1.0 and hatchling==0.1.0, we can conclude that your requirements are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("log", "constraint"),
    [
        (PIP, "torch==2.13.0+cpu"),
        (UV, "numpy==2.4.6"),
        (UV_IN_TURN, "torch==2.13.0+cpu"),
        (UV_BUILD, "hatchling==0.1.0"),
    ],
    ids=["pip", "uv", "uv in turn", "uv build"],
)
def test_the_constraint_is_named_with_the_way_out(log, constraint):
    found = diagnose(log.splitlines()).causes
    assert [each.id for each in found] == ["constraint"]
    assert f"another version than {constraint}, which" in found[0].cause
    assert all(f'"{name}": ""' in found[0].remedy for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT"))


# invoke-ai/InvokeAI #532; astral-sh/uv #10604; uv 0.13.8 for `torchvision==0.22.1` and `torch==2.13.0+cpu`.
@pytest.mark.parametrize(
    "log",
    [
        """\
ERROR: Cannot install -r requirements-mac.txt (line 14), -r requirements-mac.txt (line 6) and torch==1.12.1 because \
these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested torch==1.12.1
    kornia 0.6.0 depends on torch>=1.8.1
    torchvision 0.13.0 depends on torch==1.12.0
""",
        """\
  \N{MULTIPLICATION SIGN} No solution found when resolving dependencies:
  ╰─▶ Because there is no version of nvidia-cudnn-cu12==9.1.0.70 and torch==2.4.1 depends on \
nvidia-cudnn-cu12==9.1.0.70, we can conclude that torch==2.4.1 cannot be used.
      And because you require torch==2.4.1, we can conclude that your requirements are unsatisfiable.
""",
        """\
error: No solution found when resolving dependencies
  cause: Because torchvision==0.22.1 depends on torch==2.7.1 and you require torchvision==0.22.1, we can conclude that \
you require torch==2.7.1.
         And because you require torch==2.13.0+cpu, we can conclude that your requirements are unsatisfiable.
""",
    ],
    ids=["pip", "uv, none such", "uv, two requirements"],
)
def test_a_conflict_without_a_constraint(log):
    (cause,) = diagnose(log.splitlines()).causes
    assert cause.id == ("requirements-conflict" if log.startswith("ERROR: Cannot install") else "requirements")
