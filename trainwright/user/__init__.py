"""Files of a user that enter an image: which they are, and that none holds credentials."""
