"""Every input of a build: where it is, whether its source answers, and whether its content is right."""
