"""The verbs that ship. Thin and typed, as those of :mod:`trainwright.verbs.namespace`."""

from __future__ import annotations

from pathlib import Path

from invoke.context import Context

from trainwright.cli.program import JSON_HELP, REQUEST_FLAGS, answer, print_json, say, verb


@verb(
    help={
        "image": "tag or id of an image built here (may be repeated: shared layers are sent once)",
        "repository": "name of the ECR repository, or its whole address",
        "region": "AWS region (may be repeated: a copy in each; default: the site's, AWS_REGION)",
        "account": "whose registry, twelve digits (default: the site's, else that of the credentials)",
        "create": "make the repository where it is missing, and let it know which tags move",
        "policy": "how --create makes it, a YAML file (default: the shipped one)",
        "tag": "a tag of your own, set beside those of the rule (may be repeated)",
        "revision": "tells several builds of one plan on one day apart (default: 1)",
        "unproven": "push what did not pass its smoke tests, too; label and tag say so",
        "attach-sbom": "attach the bill of materials to the image in the registry",
        "stall": "seconds without any progress after which a push is given up (default: 300)",
        "progress": "auto, live, plain, json or none",
        "site": REQUEST_FLAGS["site"],
        "json": JSON_HELP,
    },
    iterable=["image", "region", "tag"],
)
def push(
    c: Context,
    *,
    image: list[str] | None = None,
    repository: str = "",
    region: list[str] | None = None,
    account: str | None = None,
    create: bool = False,
    policy: str | None = None,
    tag: list[str] | None = None,
    revision: int = 1,
    unproven: bool = False,
    attach_sbom: bool = False,
    stall: float = 300.0,
    progress: str = "auto",
    site: str | None = None,
    json: bool = False,
) -> None:
    """Push proven images to ECR: an immutable tag, the digest in hand, then the tags that move."""
    from trainwright.push.push import push_images, push_options
    from trainwright.push.references import find_target
    from trainwright.push.show import push_text
    from trainwright.site.site import load_site

    here = load_site(Path(site) if site else None)
    target = find_target(repository, region or (), account, here.aws)
    options = push_options(
        policy=Path(policy) if policy else None,
        tags=tuple(tag or ()),
        create=create,
        unproven=unproven,
        revision=revision,
        attach_sbom=attach_sbom,
        progress=progress,
        stall=stall,
    )
    document = push_images(image or (), target, here, options, say=say)
    if json:
        print_json(document)
    else:
        answer(push_text(document))
