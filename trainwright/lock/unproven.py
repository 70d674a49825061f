"""Locks for ``--allow-unproven`` plans: made when an image is built, kept and reused.

They are in ``.trainwright/locks/``. The name of each is a digest of what it was made from, so a different request gets
a different lock. Delete one to have it made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.catalog.wheel_lock import PLATFORM, Lock
from trainwright.core.owned import write_atomically
from trainwright.core.paths import locked, state_dir
from trainwright.core.say import Say
from trainwright.plan.draft import Draft


def stored_lock(draft: Draft) -> Lock | None:
    """The lock of a draft, if it was made on this machine before."""
    path = _path(draft)
    return Lock.load(path) if path.is_file() else None


def make_lock(say: Say) -> Callable[[Draft], Lock]:
    """A function that returns the lock of a draft, and makes it with uv if it is missing.

    It raises SourceError if the package index cannot be reached, and Conflict if the packages conflict: the version may
    need another CUDA version, or may not be released yet.
    """

    def make(draft: Draft) -> Lock:
        path = _path(draft)
        with locked(path):
            found = stored_lock(draft)
            if found is None:
                from trainwright.lock.wheels import lock_line
                from trainwright.site.uv_settings import insecure_words

                say(f"no image line has {', '.join(draft.unproven)}: resolving its Python packages")
                found = lock_line(_needs(draft))
                if found.insecure_hosts:
                    say(insecure_words(found.insecure_hosts))
                write_atomically(path, found.dump())
        return found

    return make


def _needs(draft: Draft) -> dict[str, Any]:
    """What a lock of the draft is made from, in the form of an image line."""
    chosen = {name: selection.as_json() for name, selection in draft.selections.items()}
    return {"components": chosen, "constraints": list(draft.line.constraints), "python": draft.line.python}


def _path(draft: Draft) -> Path:
    needs = _needs(draft)
    # The version of a component without packages does not affect a lock.
    needs["components"] = {
        n: {k: c[k] for k in ("packages", "index", "needs")} for n, c in needs["components"].items() if c["packages"]
    }
    text = json.dumps({**needs, "platform": PLATFORM}, sort_keys=True)
    return state_dir() / "locks" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.lock.json"
