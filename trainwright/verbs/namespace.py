"""All verbs, as a namespace of invoke. A verb imports what it needs when it runs, so that the quick ones are quick."""

from __future__ import annotations

from invoke.collection import Collection

from trainwright.verbs.build import build
from trainwright.verbs.diagnose import diagnose
from trainwright.verbs.doctor import doctor
from trainwright.verbs.estimator import estimator
from trainwright.verbs.explain import explain
from trainwright.verbs.list_ import list_
from trainwright.verbs.lock import lock
from trainwright.verbs.mirror import mirror
from trainwright.verbs.pipeline import pipeline
from trainwright.verbs.plan import plan
from trainwright.verbs.preflight import preflight
from trainwright.verbs.push import push
from trainwright.verbs.rehearse import rehearse
from trainwright.verbs.render import render
from trainwright.verbs.smoke import smoke
from trainwright.verbs.sources import sources

namespace = Collection(
    *(list_, plan, explain, sources, render, lock, build, mirror, smoke, rehearse, push, pipeline),
    *(estimator, preflight, diagnose, doctor),
)
