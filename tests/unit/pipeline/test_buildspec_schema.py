"""The schema of a buildspec, and the names and order of a batch's jobs."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.errors import RequestError
from trainwright.pipeline.batch import identifier
from trainwright.pipeline.buildspec import order_of, parse, schema

VALIDATOR = jsonschema.Draft202012Validator(schema())
GOOD = """
version: 0.2
run-as: root
env:
  shell: bash
  variables: {A: "1", b_2: ""}
  parameter-store: {P: /team/parameter}
  secrets-manager: {S: "secret:key"}
  exported-variables: [A, B]
  git-credential-helper: yes
proxy: {upload-artifacts: no, logs: yes}
phases:
  install: {on-failure: ABORT, runtime-versions: {python: 3.11}}
  pre_build: {on-failure: RETRY, commands: [a]}
  build: {on-failure: "RETRY-3-.*timed out.*", commands: [a], finally: [b], run-as: me}
  post_build: {on-failure: CONTINUE, commands: [a]}
reports:
  arn:aws:codebuild:us-west-2:123456789012:report-group/x: {files: ["**/*"], file-format: JUNITXML}
artifacts:
  files: ["**/*"]
  name: x
  exclude-paths: [y]
  secondary-artifacts: {one: {files: [a], base-directory: b}}
cache: {key: k-$(codebuild-hash-files x), fallback-keys: [k-], paths: [/root/.cache/**/*]}
batch:
  fast-fail: true
  build-matrix:
    static: {ignore-failure: false, env: {type: LINUX_CONTAINER, privileged-mode: true}}
    dynamic: {buildspec: [a.yml], env: {image: [x], variables: {V: [a, b]}}}
"""


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(schema())


def test_all_of_the_reference_is_allowed():
    parse(GOOD, "good")


@pytest.mark.parametrize("on_failure", ["ABORT", "CONTINUE", "RETRY", "RETRY-100", "RETRY-x.*", "RETRY-7-x-y"])
def test_forms_of_on_failure(on_failure):
    parse(f"version: 0.2\nphases: {{build: {{on-failure: '{on_failure}', commands: [a]}}}}", "x")


@pytest.mark.parametrize(
    "wrong",
    [
        "version: 0.1\nphases: {build: {commands: [a]}}",
        "phases: {build: {commands: [a]}}",
        "version: 0.2",
        "version: 0.2\nphases: {}",
        "version: 0.2\nphases: {biuld: {commands: [a]}}",
        "version: 0.2\nphases: {build: {comands: [a]}}",
        "version: 0.2\nphases: {build: {commands: a}}",
        "version: 0.2\nphases: {build: {commands: [a: b]}}",
        "version: 0.2\nphases: {build: {commands: [a], runtime-versions: {python: 3}}}",
        "version: 0.2\nphases: {build: {on-failure: abort, commands: [a]}}",
        "version: 0.2\nphases: {build: {on-failure: RETRY-0, commands: [a]}}",
        "version: 0.2\nphases: {build: {on-failure: RETRY-, commands: [a]}}",
        "version: 0.2\nenv: {variables: {A: 1}}\nphases: {build: {commands: [a]}}",
        "version: 0.2\nenv: {variables: {CODEBUILD_X: a}}\nphases: {build: {commands: [a]}}",
        "version: 0.2\nenv: {exported-variables: {A: 1}}\nphases: {build: {commands: [a]}}",
        "version: 0.2\nreports: {r: {files: [a], file-format: JUNIT}}\nphases: {build: {commands: [a]}}",
        "version: 0.2\nbatch: {build-list: [{identifier: a b}]}",
        "version: 0.2\nbatch: {build-list: [{identifier: a, depend-on: [b]}]}",
        "version: 0.2\nbatch: {build-graph: [{identifier: a}], build-list: [{identifier: a}]}",
        "version: 0.2\nbatch: {fast-fail: true}",
        "version: 0.2\nbatch: {build-fanout: {parallelism: 0}}",
        "- a list",
        "a: [",
    ],
)
def test_an_invalid_buildspec_is_refused(wrong):
    with pytest.raises(RequestError) as refused:
        parse(wrong, "here.yml")
    assert refused.value.message.startswith(("here.yml: ", "here.yml:2: "))


def test_the_place_of_a_fault_is_named():
    with pytest.raises(RequestError) as refused:
        parse("version: 0.2\nphases: {build: {commands: [a], finaly: [b]}}", "x")
    assert "phases.build" in refused.value.message
    assert "finaly" in refused.value.message


@pytest.mark.parametrize(
    "graph",
    [
        [{"identifier": "a"}, {"identifier": "a"}],
        [{"identifier": "a", "depend-on": ["b"]}],
        [{"identifier": "a", "depend-on": ["b"]}, {"identifier": "b", "depend-on": ["a"]}],
        [{"identifier": "a", "depend-on": ["a"]}],
    ],
)
def test_a_graph_that_cannot_run_is_refused(graph):
    with pytest.raises(RequestError):
        order_of(graph, "x")


@given(st.text(min_size=1))
def test_every_name_becomes_an_identifier(name):
    assert VALIDATOR.evolve(schema={**schema()["$defs"]["identifier"], "maxLength": 1000}).is_valid(
        identifier(name)[:128]
    )
