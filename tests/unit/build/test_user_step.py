"""A script of ``--with-run`` that fails: its own last lines, and what ended it."""

from __future__ import annotations

from pathlib import Path

from trainwright.build.user_step import step_failure
from trainwright.engine.buildkit_log import BuildProgress

# Of Docker 20.10's BuildKit; the interpreter's line is dash's.
PLAIN = """\
#9 [final 4/6] RUN --mount=type=bind,source=user/run,target=/mnt,rw /mnt/script && /mnt/settle-step
#9 0.215 fetching weights
#9 0.300 setup.sh: no weights for resnet99
#9 ERROR: executor failed running [/bin/sh -c /mnt/script && /mnt/settle-step]: exit code: 3
"""


def failure(text: str, script: str = "#!/bin/sh\nexit 3\n"):
    progress = BuildProgress("plain", owner=lambda _: "user")
    for line in text.splitlines():
        progress.feed(line)
    progress.close()
    failed = progress.failed
    assert failed is not None
    ended = {"step": failed.name, "exit_code": failed.exit_code, "last": list(failed.log), "log": "x.log"}
    return step_failure(Path("setup.sh"), script, **ended)


def test_it_shows_its_own_last_lines():
    wrong = failure(PLAIN)
    assert "--with-run setup.sh: ended with exit code 3: setup.sh: no weights for resnet99" in wrong.message
    assert [line.strip() for line in wrong.details["last_lines"]][-2:] == [
        "fetching weights",
        "setup.sh: no weights for resnet99",
    ]
    assert (wrong.details["component"], wrong.details["step_exit_code"], wrong.exit_code) == ("user", 3, 5)


def test_an_interpreter_that_the_image_lacks_is_named():
    text = PLAIN.replace("setup.sh: no weights for resnet99", "/bin/sh: 1: /mnt/script: not found")
    wrong = failure(text.replace("exit code: 3", "exit code: 127"), "#!/usr/bin/perl -w\n")
    assert "/usr/bin/perl -w is not in the image" in wrong.message and "--with-apt" in wrong.remedy
