"""``preflight``: reads a training script for known mistakes and never runs it.

``reader`` turns files into trees, ``code`` answers questions about them, ``facts`` says what kind of training it is,
``ignores`` reads the comments that silence a line; each other module is one family of rules: ``RULES`` and ``check``.
"""
