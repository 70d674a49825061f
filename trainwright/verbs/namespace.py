"""All verbs, as a namespace of invoke. A verb imports what it needs when it runs, so that the quick ones are quick."""

from __future__ import annotations

from trainwright.cli.tasks import collection
from trainwright.verbs.find import NAMES, find

namespace = collection(*filter(None, map(find, NAMES)))
