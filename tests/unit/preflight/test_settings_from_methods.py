"""Settings that a class method makes, before and after the processes join."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes

JOB: dict[str, Any] = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}
SETTINGS = (
    "import argparse\nfrom dataclasses import dataclass\nimport torch.distributed as dist\n"
    "@dataclass\nclass Settings:\n"
    "    lr: float = 0.1\n    def __post_init__(self):\n        {scaled}\n"
    "    {how}\n    def read({first}):\n        given = argparse.ArgumentParser().parse_args()\n"
    "        return {made}\n{main}"
)
SCALED = "self.lr *= dist.get_world_size()"
GUARDED = "self.lr *= dist.get_world_size() if dist.is_initialized() else 1"
EARLY = "settings = Settings.read()\ndist.init_process_group('nccl')\n"
LATE = "dist.init_process_group('nccl')\nsettings = Settings.read()\n"


def settings(main: str, scaled: str = SCALED, static: bool = False) -> str:
    """A dataclass that is made of the command line."""
    how, first, made = ("staticmethod", "", "Settings(**vars(given))") if static else ("classmethod", "cls", "")
    return SETTINGS.format(how="@" + how, first=first, made=made or "cls(**vars(given))", main=main, scaled=scaled)


@pytest.mark.parametrize("static", [False, True])
def test_settings_that_ask_for_the_world_before_the_processes_join(static: bool) -> None:
    assert "TW472" in codes(settings(EARLY, static=static), JOB)
    assert "TW472" not in codes(settings(LATE, static=static), JOB)
    assert "TW472" not in codes(settings(EARLY, GUARDED, static), JOB)


def test_a_decorator_that_may_have_joined_the_processes_is_left_alone() -> None:
    script = (
        "import torch.distributed as dist\nfrom helpers import joined\n@joined\ndef main():\n"
        "    print(dist.get_rank())\n    dist.init_process_group('nccl')\nmain()\n"
    )
    assert "TW472" not in codes(script, JOB)
