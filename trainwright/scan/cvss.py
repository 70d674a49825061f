"""Base scores of CVSS vectors, versions 3.0, 3.1 and 4.0.

Only base metrics count: what a vulnerability is, not how it is exploited today or where. The weights are those of
FIRST's specifications; the scores of 4.0's macro vectors are in ``cvss4.json``, which says where they come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trainwright.core.data_files import read_json

_SCORES = Path(__file__).with_name("cvss4.json")
_FORM = re.compile(r"CVSS:(3\.[01]|4\.0)((?:/[A-Z]{1,3}:[A-Za-z]+)+)")
# CVSS v3.1 specification, section 7.4; 3.0 has the same.
_IMPACTS = {"H": 0.56, "L": 0.22, "N": 0.0}
_WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "S": {"U": 6.42, "C": 7.52},
    **dict.fromkeys("CIA", _IMPACTS),
}
_PRIVILEGES = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}  # by scope
# CVSS v4.0 specification, section 8: how many steps each value is below the most severe one.
_STEPS: Mapping[str, str] = {
    **{"AV": "NALP", "PR": "NLH", "UI": "NPA", "AC": "LH", "AT": "NP"},
    **dict.fromkeys(("VC", "VI", "VA", "SC", "SI", "SA"), "HLN"),
}
_SETS = (("AV", "PR", "UI"), ("AC", "AT"), ("VC", "VI", "VA"), ("SC", "SI", "SA"))
# Table 24 to 27: the most severe vectors of each level, and how many steps there are to the next level.
_HIGHEST: tuple[Mapping[str, tuple[str, ...]], ...] = (
    {"0": ("NNN",), "1": ("ANN", "NLN", "NNP"), "2": ("PNN", "ALP")},
    {"0": ("LN",), "1": ("HN", "LP")},
    {"00": ("HHH",), "10": ("LHH", "HLH"), "21": ("LLL",)},
    {"1": ("HHH",), "2": ("LLL",)},
)
_DEPTHS: tuple[Mapping[str, int], ...] = (
    {"0": 1, "1": 4, "2": 5},
    {"0": 1, "1": 2},
    {"00": 7, "10": 8, "21": 10},
    {"1": 5, "2": 4},
)


def base_score(vector: str) -> float | None:
    """The base score of a vector, 0.0 to 10.0; ``None`` if it is not a vector of these versions, or lacks a metric."""
    match = _FORM.fullmatch(vector.strip())
    if match is None:
        return None
    metrics = dict(part.split(":") for part in match[2][1:].split("/"))
    try:
        return _version4(metrics) if match[1] == "4.0" else _version3(metrics)
    except (KeyError, ValueError):
        return None


def _version3(metrics: Mapping[str, str]) -> float:
    """CVSS v3.1 specification, section 7.1."""
    weights = {name: values[metrics[name]] for name, values in _WEIGHTS.items()}
    left = 1 - (1 - weights["C"]) * (1 - weights["I"]) * (1 - weights["A"])
    changed = metrics["S"] == "C"
    impact = weights["S"] * left
    if changed:
        impact = 7.52 * (left - 0.029) - 3.25 * (left - 0.02) ** 15
    privileges = _PRIVILEGES[metrics["S"]][metrics["PR"]]
    ease = 8.22 * weights["AV"] * weights["AC"] * privileges * weights["UI"]
    if impact <= 0:
        return 0.0
    return _rounded_up(min((impact + ease) * (1.08 if changed else 1), 10))


def _rounded_up(score: float) -> float:
    """To one decimal, up; as the specification's appendix A does it, so that floats make no difference."""
    whole = round(score * 100_000)
    return whole / 100_000 if whole % 10_000 == 0 else (whole // 10_000 + 1) / 10


def _version4(metrics: Mapping[str, str]) -> float:
    """CVSS v4.0 specification, section 8.2: the score of the macro vector, less the distance to its highest one."""
    values = {name: metrics[name] for name in _STEPS}
    if all(values[name] == "N" for name in (*_SETS[2], *_SETS[3])):
        return 0.0
    levels = _levels(values)
    scores = _scores()
    score = scores[_macro(levels)]
    losses = [0.0]  # of exploit maturity, which is not a base metric: it has a lower level, and no distance to it
    for number, level in enumerate(levels):
        names = (_macro([*levels[:number], below, *levels[number + 1 :]]) for below in _lower(number, level))
        lower = [scores[name] for name in names if name in scores]
        if lower:
            share = _distance(values, number, level) / _DEPTHS[number][level]
            losses.append((score - max(lower)) * share)
    return int((score - sum(losses) / len(losses)) * 10 + 0.5 + 1e-6) / 10


def _levels(values: Mapping[str, str]) -> list[str]:
    """The levels of the four sets of base metrics; the third is that of EQ3 and EQ6 together."""
    near = [values[name] == "N" for name in _SETS[0]]
    first = "0" if all(near) else "1" if any(near) and values["AV"] != "P" else "2"
    second = "0" if (values["AC"], values["AT"]) == ("L", "N") else "1"
    high = [values[name] == "H" for name in _SETS[2]]
    third = "00" if high[0] and high[1] else "10" if any(high) else "21"
    return [first, second, third, "1" if "H" in (values[name] for name in _SETS[3]) else "2"]


def _lower(number: int, level: str) -> tuple[str, ...]:
    """The next lower levels of a set; of EQ3 and EQ6 there may be two."""
    if number == 2:
        return {"00": ("01", "10"), "10": ("11",), "21": ()}[level]
    return (str(int(level) + 1),)


def _macro(levels: list[str]) -> str:
    """The name of a macro vector: EQ1 to EQ6; exploit maturity that is not stated is the highest."""
    return f"{levels[0]}{levels[1]}{levels[2][0]}{levels[3]}0{levels[2][1]}"


def _distance(values: Mapping[str, str], number: int, level: str) -> int:
    """Steps from the highest vector of a level that is not below this one in any metric."""
    for highest in _HIGHEST[number][level]:
        names = zip(_SETS[number], highest, strict=True)
        steps = [_STEPS[name].index(values[name]) - _STEPS[name].index(top) for name, top in names]
        if min(steps) >= 0:
            return sum(steps)
    raise ValueError(level)


@cache
def _scores() -> Mapping[str, float]:
    found: Mapping[str, float] = read_json(_SCORES)["scores"]
    return found
