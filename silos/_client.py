"""The Flower client: from a message to a silo and back.

| message           | content                                                              | reply                     |
|-------------------|----------------------------------------------------------------------|---------------------------|
| `train`           | `arrays`; `schedule`: round, attempt and the fields of `Schedule`    | `arrays`: trained weights |
| `query.statistic` | `statistic`: round, attempt, item and its fields; `arrays` to score  | the item: noisy sums      |
| `query.silo`      | nothing                                                              | `silo`: its public name   |

A silo that declines says why, in public numbers. A silo that fails says only that it did: the text of an exception may
quote private records, so it goes to the silo's own log alone.
"""

import logging
from collections.abc import Callable, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from accounting import BudgetExhausted, InvalidValue, LedgerConflict
from silos._errors import Declined
from silos._gate import ARRAYS, NAME, open_gate
from silos._job import FleetTrainer
from silos._records import from_record
from silos._schedule import Schedule
from silos._silo import Question, Request, Silo
from silos._statistics import Statistic, statistic_from_config
from silos._together import train_together
from silos._weights import ITEM, Weights

DECLINED = 1001
FAILED = 1002

_LOG = logging.getLogger("silodp.silos")
_CONFIG_KEYS = {"server-round"}
_KEY = ("round", "attempt")


def client_app(find: Callable[[Context], Silo]) -> ClientApp:
    """A Flower app that serves silos.

    Args:
        find: the silo of a node, from its context.
    """
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        silo = find(context)
        return _answer(message, silo, _train(silo, message))

    @app.query("statistic")
    def statistic(message: Message, context: Context) -> Message:
        silo = find(context)
        return _answer(message, silo, _answer_question(silo, message), "statistic")

    @app.query("silo")
    def silo(message: Message, context: Context) -> Message:
        return Message(open_gate({NAME: ConfigRecord({"name": find(context).name})}, {}), reply_to=message)

    return app


def serve_together(
    engine: FleetTrainer, find: Callable[[Context], Silo]
) -> Callable[[Sequence[tuple[Message, Context]]], list[Message]]:
    """A function that serves all train messages of a round at once, as `client_app` serves them one by one.

    Args:
        engine: trains all silos.
        find: the silo of a node, from its context.
    """

    def serve(messages: Sequence[tuple[Message, Context]]) -> list[Message]:
        silos = [find(context) for _, context in messages]
        asked = [_ask(silo, message) for silo, (message, _) in zip(silos, messages, strict=True)]
        return [
            _answer(message, silo, outcome)
            for (message, _), silo, outcome in zip(messages, silos, train_together(engine, asked), strict=True)
        ]

    return serve


def request_content(request_arrays: ArrayRecord, schedule: Schedule, *, round: int, attempt: int) -> RecordDict:
    """The content of a train message; the inverse of what the client reads."""
    record = schedule.to_config()
    record["round"] = round
    record["attempt"] = attempt
    return RecordDict({"arrays": request_arrays, "schedule": record})


def question_content(statistic: Statistic, *, round: int, attempt: int, weights: ArrayRecord | None) -> RecordDict:
    """The content of a statistic message; the inverse of what the client reads."""
    record = statistic.to_config()
    record["round"] = round
    record["attempt"] = attempt
    content = RecordDict({"statistic": record})
    if weights is not None:
        content["arrays"] = weights
    return content


def _train(silo: Silo, message: Message) -> Weights | Exception:
    try:
        return silo.train(_read(message.content))
    except Exception as error:  # noqa: BLE001  # one silo's failure, of whatever kind, must not end the others' round
        return error


def _ask(silo: Silo, message: Message) -> tuple[Silo, Request] | Exception:
    try:
        return silo, _read(message.content)
    except Exception as error:  # noqa: BLE001  # as above
        return error


def _answer_question(silo: Silo, message: Message) -> Weights | Exception:
    try:
        return silo.answer(_read_question(message.content))
    except Exception as error:  # noqa: BLE001  # as above
        return error


def _answer(message: Message, silo: Silo, outcome: Weights | Exception, kind: str = "schedule") -> Message:
    if not isinstance(outcome, Exception):
        return Message(_let_out(message, silo, outcome, kind), reply_to=message)
    if isinstance(outcome, Declined | BudgetExhausted | LedgerConflict):
        return Message(Error(DECLINED, f"declined: {outcome}"), reply_to=message)
    _LOG.warning("Silo %s failed.", silo.name, exc_info=outcome)
    return Message(Error(FAILED, f"failed: {type(outcome).__name__}"), reply_to=message)


def _let_out(message: Message, silo: Silo, released: Weights, kind: str) -> RecordDict:
    """The reply, through the gate: what leaves must be what the ledger released for this very request."""
    asked = message.content[kind]
    if not isinstance(asked, ConfigRecord):
        raise TypeError(f"Expected {kind!r} of a message that was served to be a ConfigRecord.")
    item = str(asked["item"]) if kind == "statistic" else ITEM
    charge = silo.charge(item, *_number(asked))
    name = ARRAYS if item == ITEM else item
    return open_gate({name: released}, {} if charge is None else {name: charge})


def _read(content: RecordDict) -> Request:
    arrays, numbers = content.get("arrays"), content.get("schedule")
    if not isinstance(arrays, ArrayRecord) or not isinstance(numbers, ConfigRecord):
        raise Declined("A train message must hold the records 'arrays' and 'schedule'.")
    for config in content.values():
        if not isinstance(config, ConfigRecord) or config is numbers:
            continue
        if odd := set(config) - _CONFIG_KEYS:
            raise Declined(f"Option {min(odd)!r} of the strategy has no meaning here: the silo's SGD would ignore it.")
    round, attempt = _number(numbers)
    try:
        schedule = Schedule.from_config({name: value for name, value in numbers.items() if name not in _KEY})
    except InvalidValue as error:
        raise Declined(str(error)) from error
    return Request(round=round, attempt=attempt, schedule=schedule, weights=from_record(arrays))


def _read_question(content: RecordDict) -> Question:
    arrays, asked = content.get("arrays"), content.get("statistic")
    if not isinstance(asked, ConfigRecord):
        raise Declined("A statistic message must hold the record 'statistic'.")
    round, attempt = _number(asked)
    try:
        statistic = statistic_from_config({name: value for name, value in asked.items() if name not in _KEY})
    except InvalidValue as error:
        raise Declined(str(error)) from error
    weights = from_record(arrays) if isinstance(arrays, ArrayRecord) else {}
    return Question(round=round, attempt=attempt, statistic=statistic, weights=weights)


def _number(asked: ConfigRecord) -> tuple[int, int]:
    round, attempt = (asked.get(name) for name in _KEY)
    if not isinstance(round, int) or not isinstance(attempt, int):
        raise Declined(f"Expected round={round!r} and attempt={attempt!r} to be integers.")
    return round, attempt
