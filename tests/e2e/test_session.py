"""A command in a real image: the folder is there, what it makes is the user's, and no container is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.engine.engine import connect
from trainwright.prove.session import enter


@pytest.mark.parametrize(("command", "code"), [("python -c 'import torch' && cat here > there", 0), ("exit 7", 7)])
def test_a_command_works_in_the_folder_and_its_exit_code_is_ours(
    cpu_image: str, tmp_path: Path, docker: Callable[..., str], command: str, code: int
) -> None:
    (tmp_path / "here").write_text("text")
    argv = ["bash", "-c", command]
    done = enter(connect(setup=False), cpu_image, argv, tmp_path, environment={}, network="none", terminal=False)
    assert done == code
    assert not docker("ps", "--all", "--quiet", "--filter", "name=trainwright-run-").split()
    if code == 0:
        assert (tmp_path / "there").read_text() == "text"
        assert (tmp_path / "there").stat().st_uid == (tmp_path / "here").stat().st_uid
