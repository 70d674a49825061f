"""Who may change this machine: one table that ``./invoke`` and ``trainwright/engine/consent.py`` are both held to."""

from __future__ import annotations

import pytest

NAMES = ("TRAINWRIGHT_ENGINE_SETUP", "CI", "CODEBUILD_BUILD_ID", "container")
# The environment (TRAINWRIGHT_ENGINE_SETUP as SETUP), what happens without a terminal, and what on one.
ROWS = [
    ({}, "never", "ask"),
    ({"SETUP": ""}, "never", "ask"),
    ({"SETUP": "auto"}, "auto", "auto"),
    ({"SETUP": "ask"}, "never", "ask"),
    ({"SETUP": "never"}, "never", "never"),
    ({"CI": "true"}, "auto", "auto"),
    ({"CI": "1"}, "auto", "auto"),
    ({"CI": "woodpecker"}, "auto", "auto"),
    ({"CI": "true", "SETUP": ""}, "auto", "auto"),
    ({"CI": "true", "SETUP": "ask"}, "never", "ask"),
    ({"CI": "true", "SETUP": "never"}, "never", "never"),
    ({"CI": "false"}, "never", "ask"),
    ({"CI": "False"}, "never", "ask"),
    ({"CI": "FALSE"}, "never", "ask"),
    ({"CI": "fAlse"}, "never", "ask"),
    ({"CI": "0"}, "never", "ask"),
    ({"CI": "", "container": "", "CODEBUILD_BUILD_ID": ""}, "never", "ask"),
    ({"CODEBUILD_BUILD_ID": "p:1"}, "auto", "auto"),
    ({"container": "podman"}, "auto", "auto"),
    ({"container": "oci", "CI": "false"}, "auto", "auto"),
    ({"SETUP": "atuo"}, "invalid", "invalid"),
    ({"SETUP": "AUTO"}, "invalid", "invalid"),
]
CONSENT = pytest.mark.parametrize(
    ("environ", "terminal", "mode"),
    [
        pytest.param(
            {key.replace("SETUP", NAMES[0]): value for key, value in environ.items()},
            terminal,
            mode,
            id=f"{' '.join(f'{key}={value}' for key, value in environ.items())}-{'terminal' if terminal else 'none'}",
        )
        for environ, without, on_one in ROWS
        for terminal, mode in ((False, without), (True, on_one))
    ],
)
