"""The configuration of an image in a registry, read as an engine would show it."""

from __future__ import annotations

from trainwright.prove.probe import registry_config

# The example of the OCI image specification (opencontainers/image-spec, config.md), without its labels.
LAYERS = [
    "sha256:c6f988f4874bb0add23a778f753c65efe992244e148a1d2ec2a8b664fb66bbd1",
    "sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef",
]
COMMAND = '/bin/sh -c #(nop) CMD ["sh"]'
ADDED = "/bin/sh -c #(nop) ADD file:a3bc1e842b69636f9df5256c49c5374fb4eef1e281fe3f282c65fb853ee171c5 in /"
EXAMPLE = {
    "created": "2015-10-31T22:22:56.015925234Z",
    "author": "Alyssa P. Hacker <alyspdev@example.com>",
    "architecture": "amd64",
    "os": "linux",
    "config": {
        "User": "alice",
        "ExposedPorts": {"8080/tcp": {}},
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin", "FOO=oci_is_a", "BAR=well_written_spec"],
        "Entrypoint": ["/bin/my-app-binary"],
        "Cmd": ["--foreground", "--config", "/etc/my-app.d/default.cfg"],
        "Volumes": {"/var/log/my-app-logs": {}, "/var/job-result-data": {}},
        "WorkingDir": "/home/alice",
    },
    "rootfs": {"diff_ids": LAYERS, "type": "layers"},
    "history": [
        {"created": "2015-10-31T22:22:54.690851953Z", "created_by": ADDED},
        {"created": "2015-10-31T22:22:55.613815829Z", "created_by": COMMAND, "empty_layer": True},
    ],
}


def test_it_has_what_an_engine_says_of_an_image() -> None:
    assert registry_config("sha256:1", EXAMPLE, 9654) == {
        "id": "sha256:1",
        "layers": LAYERS,
        "size_bytes": 9654,
        "architecture": "amd64",
        "entrypoint": ["/bin/my-app-binary"],
        "cmd": ["--foreground", "--config", "/etc/my-app.d/default.cfg"],
        "user": "alice",
        "working_dir": "/home/alice",
        "environment": {"PATH": "/usr/local/sbin:/usr/local/bin", "FOO": "oci_is_a", "BAR": "well_written_spec"},
        "labels": {},
        "volumes": ["/var/job-result-data", "/var/log/my-app-logs"],
        "history": [COMMAND, ADDED],  # an engine shows the newest first
    }


def test_what_the_specification_leaves_out_is_empty() -> None:
    found = registry_config("sha256:1", {"architecture": "arm64", "os": "linux", "rootfs": {"type": "layers"}}, 0)
    assert (found["architecture"], found["layers"], found["history"]) == ("arm64", [], [])
    assert (found["user"], found["environment"], found["entrypoint"]) == ("", {}, None)
