"""The user's files that enter an image: selects them, and refuses credentials."""
