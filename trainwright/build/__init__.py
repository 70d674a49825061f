"""From a plan to an image: the Dockerfile, its context, BuildKit, and the record of what was built."""
