"""A script with the rehearsal's observer in it, outside of any container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainwright.core.paths import templates_dir
from trainwright.rehearse import observer_files, opt_ml
from trainwright.rehearse.observed import Process


def observed(tmp_path: Path, script: str, **environment: str) -> tuple[Process, ...]:
    """Run a script with the real observer, and read what that wrote."""
    control = tmp_path / "control"
    (control / "facts").mkdir(parents=True)
    text = (templates_dir() / "rehearsal" / "observer.py").read_text()
    (control / "observer.py").write_text(text.replace(opt_ml.CONTROL, str(control)))
    run = f"exec(compile(open({str(control / 'observer.py')!r}).read(), 'observer', 'exec'), {{}})\n"
    (tmp_path / "sitecustomize.py").write_text(run)
    (tmp_path / "train.py").write_text(script)
    subprocess.run(
        [sys.executable, "train.py", "--word"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return observer_files.processes(control / "facts")
