"""The executed twin of the cu113 recipe of AWS's developer guide.

The templates are the shipped ones; only data differs: base images made here, and archives made here that take the
shape of those whose hosts cannot be reached. ``docs/twin.md`` says what stands in for what.
"""
