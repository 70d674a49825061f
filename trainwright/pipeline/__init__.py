"""Pipelines for build services, made from the catalog: CodeBuild's buildspec and batch graph, and a bake file."""
