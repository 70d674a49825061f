"""A Trainer's compute_loss, and the version of transformers that requirements.txt asks for.

Source: transformers 4.45.2, 4.46.0, 4.46.3 and 4.49.0, trainer.py, training_step.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.preflight.preflight import preflight

WEIGHTED = """\
from transformers import Trainer
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        loss = model(**inputs).loss
        return (loss, loss) if return_outputs else loss
Weighted(model=model, args=arguments, train_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("wanted", "severity"),
    [
        ("transformers==4.49.0", "error"),
        ("transformers~=4.47.1", "error"),
        ("transformers~=4.45.1", None),
        ("transformers==4.47.*", "error"),
        ("transformers>=4.40", "error"),
        ("transformers~=4.40", "error"),
        ("Transformers[torch]==4.46.*  # ours", "error"),
        ("transformers==4.45.2", None),
        ("transformers<4.46", None),
        ("transformers==4.41.*", None),
        ("datasets==3.0", "note"),
        ("transformers", "note"),
        (None, "note"),
    ],
)
def test_the_loss_takes_what_the_trainer_of_that_version_gives(wanted, severity, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WEIGHTED)
    if wanted is not None:
        (tmp_path / "requirements.txt").write_text(f"-i https://example.com\n{wanted}\n")
    found = preflight([str(tmp_path / "train.py")]).findings
    assert [each.severity for each in found if each.code == "TW525"] == ([severity] if severity else [])


def test_a_file_that_is_no_text_says_nothing_of_the_version(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WEIGHTED)
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfetransformers==4.49.0\n")
    (found,) = [each for each in preflight([str(tmp_path / "train.py")]).findings if each.code == "TW525"]
    assert found.severity == "note"


@pytest.mark.parametrize("more", [", num_items_in_batch=None", ", **kwargs"])
def test_a_loss_that_takes_it(more, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WEIGHTED.replace("return_outputs=False", f"return_outputs=False{more}"))
    (tmp_path / "requirements.txt").write_text("transformers==4.49.0\n")
    assert "TW525" not in {each.code for each in preflight([str(tmp_path / "train.py")]).findings}
