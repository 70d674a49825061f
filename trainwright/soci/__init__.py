"""SOCI: what a runtime needs to start an image before all of its layers are there."""
