"""Which images the lifecycle policy of a repository removes."""

from __future__ import annotations

import fnmatch
import json

from trainwright.push.repository import load_policy

NIGHT = 86400.0


def expired(text: str, images: dict[str, tuple[float, tuple[str, ...]]], now: float) -> set[str]:
    """What ECR removes, by "Lifecycle policy properties" and "Lifecycle policy evaluation rules" of its user guide.

    Rules go by their priority. An image that fits a rule by its tags is out of reach of the rules below it; all tags of
    a list have to fit one of the image's. Images are counted from the newest on.

    Args:
        text: the policy.
        images: digest to when it was pushed, and its tags.
        now: in seconds, as are the times of the images.
    """
    gone: set[str] = set()
    taken: set[str] = set()
    for rule in sorted(json.loads(text)["rules"], key=lambda rule: rule["rulePriority"]):
        what = rule["selection"]
        patterns = what.get("tagPatternList", [])
        fit = {
            name
            for name, (_, tags) in images.items()
            if what["tagStatus"] == "any"
            or (what["tagStatus"] == "untagged" and not tags)
            or (tags and patterns and all(any(fnmatch.fnmatchcase(tag, one) for tag in tags) for one in patterns))
        }
        newest = sorted(fit, key=lambda name: images[name][0], reverse=True)
        if what["countType"] == "imageCountMoreThan":
            found = set(newest[what["countNumber"] :])
        else:
            found = {name for name in fit if now - images[name][0] > what["countNumber"] * NIGHT}
        gone |= found - taken
        taken |= fit
    return gone


def test_a_released_image_stays_for_ever_and_a_nightly_one_does_not():
    images = {
        f"night {night} of {line}": (
            night * NIGHT + line,
            (f"pytorch-2.{line}.0-cpu-py311-{night}", f"nightly-{night}"),
        )
        for night in range(400)
        for line in range(3)
    }
    images["released by hand"] = (0.0, ("pytorch-2.0.0-cpu-py311-debian12-20261121-0123456789ab",))
    images["a night's, released later"] = (0.0, ("pytorch-2.0.0-cpu-py311-x", "nightly-x", "release-2.0"))
    images["replaced"] = (0.0, ())
    images["replaced today"] = (399 * NIGHT, ())
    gone = expired(load_policy().lifecycle_text(), images, 400 * NIGHT)
    assert {"released by hand", "a night's, released later", "replaced today"} & gone == set()
    assert "replaced" in gone
    stay = [name for name in images if name.startswith("night ") and name not in gone]
    assert len(stay) == load_policy().keep_nightly
    assert {"night 399 of 0", "night 399 of 1", "night 399 of 2"} <= set(stay)
