"""Tasks: what a model's outputs mean."""

from typing import Literal, get_args

from accounting import InvalidValue

Task = Literal["binary", "multiclass", "regression"]


def check_task(task: str) -> None:
    """Refuse a task that is not known.

    Raises:
        InvalidValue: listing those that are.
    """
    if task not in get_args(Task):
        raise InvalidValue(f"Unknown task {task!r}; known: {', '.join(get_args(Task))}.")
