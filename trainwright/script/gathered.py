"""State dicts that a sharded model gathers in the first process only; in the others they are empty.

Sources: PyTorch's documentation of FullStateDictConfig (rank0_only) and of StateDictOptions (full_state_dict together
with cpu_offload: only rank 0 gets the state, all other ranks get an empty one).
"""

from __future__ import annotations

from collections.abc import Callable

from trainwright.script.abstract_state import AbstractState
from trainwright.script.events import Event
from trainwright.script.values import NONE, Marks, Value

# Of a state, and of its length: as a condition it is true in the first process alone.
EMPTY_ELSEWHERE = "empty-elsewhere"
_STATE_DICT = "torch.distributed.checkpoint.state_dict."
_CONFIG = ("offload_to_cpu", "rank0_only")
_OPTIONS = ("full_state_dict", "cpu_offload")


def tags(state: AbstractState, model: Value) -> Marks:
    """Return what ``model.state_dict()`` is where ``state_dict_type`` says who gets it."""
    if "fsdp" not in model.tags:
        return NONE
    for event in reversed(state.events):
        if event.last == "set_state_dict_type" or (
            event.last == "state_dict_type" and any(name.endswith(".state_dict_type") for name in state.contexts)
        ):
            return _alone(event.arg("state_dict_config", 2), "rank0_only")
    return NONE


def _alone(options: Value | None, *names: str) -> Marks:
    given = (options.attrs or {}) if options is not None else {}
    alone = all(name in given and given[name].single() is True for name in names)
    return frozenset({EMPTY_ELSEWHERE}) if alone else NONE


def _options(event: Event, names: tuple[str, ...]) -> Value:
    given = {name: value for number, name in enumerate(names) if (value := event.arg(name, number)) is not None}
    return Value(made=frozenset({event.name}), attrs=given)


def _got(event: Event, number: int) -> Value:
    """Return what ``get_model_state_dict`` and its relatives return: ``number`` states."""
    found = _alone(event.arg("options"), *_OPTIONS)
    made = tuple(Value(made=frozenset({event.name}), tags=found) for _ in range(number))
    return made[0] if number == 1 else Value(items=made)


FUNCTIONS: dict[str, Callable[[AbstractState, Event], Value]] = {
    **dict.fromkeys(
        (
            f"torch.distributed.fsdp.{place}FullStateDictConfig"
            for place in ("", "api.", "fully_sharded_data_parallel.")
        ),
        lambda _, event: _options(event, _CONFIG),
    ),
    f"{_STATE_DICT}StateDictOptions": lambda _, event: _options(event, _OPTIONS),
    f"{_STATE_DICT}get_model_state_dict": lambda _, event: _got(event, 1),
    f"{_STATE_DICT}get_optimizer_state_dict": lambda _, event: _got(event, 1),
    f"{_STATE_DICT}get_state_dict": lambda _, event: _got(event, 2),
}
