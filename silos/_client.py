"""The Flower client: from a message to a silo and back.

| message           | content                                                              | reply                     |
|-------------------|----------------------------------------------------------------------|---------------------------|
| `train`           | `arrays`; `schedule`: round, attempt, rounds, fields of `Schedule`   | `arrays`: trained weights |
|                   | `anchor` and `correction`, where there are: see `silos._drift`       |                           |
| `query.statistic` | `statistic`: round, attempt, item and its fields; `arrays` to score  | the item: noisy sums      |
| `query.silo`      | nothing                                                              | `silo`: its public name   |
| `query.public`    | `public`: names of numbers that the scenario declares public         | an item each: its number  |

A silo that declines says why, in one word for programs (`Reason`) and in public numbers. A silo that fails says only
that it did: the text of an exception may quote private records, so it goes to the silo's own log alone.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from accounting import BudgetExhausted, InvalidValue, LedgerConflict
from silos._errors import Declined, Reason, ReleaseRefused
from silos._gate import ARRAYS, NAME, PUBLIC, open_gate
from silos._job import FleetTrainer
from silos._public import public_numbers
from silos._records import filled, from_record
from silos._schedule import Schedule
from silos._silo import Question, Request, Silo
from silos._statistics import Statistic, statistic_from_config
from silos._together import train_together
from silos._weights import ITEM, Weights

DECLINED = 1001
FAILED = 1002

_LOG = logging.getLogger("silodp.silos")
_CONFIG_KEYS = {"server-round"}
_ARRAYS = ("arrays", "anchor", "correction")
_KEY = ("round", "attempt", "rounds")


def client_app(find: Callable[[Context], Silo]) -> ClientApp:
    """A Flower app that serves silos.

    Args:
        find: the silo of a node, from its context.
    """
    app = ClientApp()

    def found(context: Context) -> Silo | Exception:
        try:
            return find(context)
        except Exception as error:  # noqa: BLE001  # its text may say what lies in the silo, and is for its log alone
            return error

    @app.train()
    def train(message: Message, context: Context) -> Message:
        silo = found(context)
        return _answer(message, silo, silo if isinstance(silo, Exception) else _train(silo, message))

    @app.query("statistic")
    def statistic(message: Message, context: Context) -> Message:
        silo = found(context)
        outcome = silo if isinstance(silo, Exception) else _answer_question(silo, message)
        return _answer(message, silo, outcome, "statistic")

    @app.query("silo")
    def silo(message: Message, context: Context) -> Message:
        silo = found(context)
        if isinstance(silo, Exception):
            return _answer(message, silo, silo)
        return Message(open_gate({NAME: ConfigRecord({"name": silo.name})}, {}), reply_to=message)

    @app.query("public")
    def public(message: Message, context: Context) -> Message:
        silo = found(context)
        if isinstance(silo, Exception):
            return _answer(message, silo, silo)
        try:
            return Message(_tell(silo, message.content), reply_to=message)
        except (Declined, ReleaseRefused) as error:
            return Message(Error(DECLINED, f"declined: {Reason.RELEASE}: {error}"), reply_to=message)

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


def request_content(
    request_arrays: ArrayRecord,
    schedule: Schedule,
    *,
    round: int,
    attempt: int,
    rounds: int | None = None,
    drift: Mapping[str, ArrayRecord] | None = None,
) -> RecordDict:
    """The content of a train message; the inverse of what the client reads.

    Args:
        request_arrays: weights to start from.
        schedule, round, attempt, rounds: of the request.
        drift: its ``anchor`` and ``correction``, where there are.
    """
    numbers = {"round": round, "attempt": attempt} | ({} if rounds is None else {"rounds": rounds})
    asked = filled(schedule.to_config(), numbers)
    return filled(RecordDict(), {"arrays": request_arrays, **(drift or {}), "schedule": asked})


def question_content(statistic: Statistic, *, round: int, attempt: int, weights: ArrayRecord | None) -> RecordDict:
    """The content of a statistic message; the inverse of what the client reads."""
    record = statistic.to_config()
    record["round"] = round
    record["attempt"] = attempt
    content = RecordDict({"statistic": record})
    if weights is not None:
        content["arrays"] = weights
    return content


def public_content(names: Iterable[str]) -> RecordDict:
    """The content of a message that asks for public numbers; the inverse of what the client reads."""
    return RecordDict({"public": ConfigRecord({"names": list(names)})})


def _tell(silo: Silo, content: RecordDict) -> RecordDict:
    asked = content.get("public")
    names = asked.get("names") if isinstance(asked, ConfigRecord) else None
    if not isinstance(names, list):
        raise Declined("A public message must hold the record 'public' with a list of names.")
    numbers = public_numbers(silo.shard, silo.held_out)
    items = {str(name): ConfigRecord({"number": numbers.get(str(name), 0)}) for name in names}
    return open_gate(items, {}, PUBLIC | silo.public)


def _train(silo: Silo, message: Message) -> Weights | Exception:
    try:
        return silo.train(_read(silo, message.content))
    except Exception as error:  # noqa: BLE001  # one silo's failure, of whatever kind, must not end the others' round
        return error


def _ask(silo: Silo, message: Message) -> tuple[Silo, Request] | Exception:
    try:
        return silo, _read(silo, message.content)
    except Exception as error:  # noqa: BLE001  # as above
        return error


def _answer_question(silo: Silo, message: Message) -> Weights | Exception:
    try:
        return silo.answer(_read_question(silo, message.content))
    except Exception as error:  # noqa: BLE001  # as above
        return error


def _answer(message: Message, silo: Silo | Exception, outcome: Weights | Exception, kind: str = "schedule") -> Message:
    if isinstance(silo, Silo) and not isinstance(outcome, Exception):
        return Message(_let_out(message, silo, outcome, kind), reply_to=message)
    if isinstance(outcome, Declined | BudgetExhausted | LedgerConflict):
        return Message(Error(DECLINED, f"declined ({_reason(outcome)}): {outcome}"), reply_to=message)
    name = silo.name if isinstance(silo, Silo) else "that does not open"
    _LOG.warning("Silo %s failed.", name, exc_info=outcome if isinstance(outcome, Exception) else None)
    return Message(Error(FAILED, f"failed: {type(outcome).__name__}"), reply_to=message)


def _reason(error: Declined | BudgetExhausted | LedgerConflict) -> Reason:
    if isinstance(error, Declined):
        return error.reason
    return Reason.BUDGET if isinstance(error, BudgetExhausted) else Reason.REPLAY


def _let_out(message: Message, silo: Silo, released: Weights, kind: str) -> RecordDict:
    """The reply, through the gate: what leaves must be what the ledger released for this very request."""
    asked = message.content[kind]
    if not isinstance(asked, ConfigRecord):
        raise TypeError(f"Expected {kind!r} of a message that was served to be a ConfigRecord.")
    item = str(asked["item"]) if kind == "statistic" else ITEM
    charge = silo.charge(item, *_number(asked))
    name = ARRAYS if item == ITEM else item
    return open_gate({name: released}, {} if charge is None else {name: charge})


def _read(silo: Silo, content: RecordDict) -> Request:
    arrays = {name: record for name, record in content.items() if isinstance(record, ArrayRecord) and name in _ARRAYS}
    numbers = content.get("schedule")
    if "arrays" not in arrays or not isinstance(numbers, ConfigRecord):
        raise Declined("A train message must hold the records 'arrays' and 'schedule'.")
    for name, config in content.items():
        if name in arrays or config is numbers:
            continue
        if not isinstance(config, ConfigRecord):
            raise Declined(f"A train message may not hold {name!r}.")
        if odd := set(config) - _CONFIG_KEYS:
            raise Declined(f"Option {min(odd)!r} of the strategy has no meaning here: the silo's SGD would ignore it.")
    round, attempt = _number(numbers)
    rounds = numbers.get("rounds")
    if rounds is not None and (not isinstance(rounds, int) or isinstance(rounds, bool)):
        raise Declined(f"Expected rounds={rounds!r} to be an integer.")
    try:
        schedule = Schedule.from_config({name: value for name, value in numbers.items() if name not in _KEY})
    except InvalidValue as error:
        raise Declined(str(error)) from error
    found = {name: _weights(silo, record) for name, record in arrays.items()}
    return Request(
        round=round,
        attempt=attempt,
        rounds=rounds,
        schedule=schedule,
        weights=found["arrays"],
        anchor=found.get("anchor"),
        correction=found.get("correction"),
    )


def _read_question(silo: Silo, content: RecordDict) -> Question:
    arrays, asked = content.get("arrays"), content.get("statistic")
    if not isinstance(asked, ConfigRecord):
        raise Declined("A statistic message must hold the record 'statistic'.")
    if odd := set(content) - {"arrays", "statistic"}:
        raise Declined(f"A statistic message may not hold {min(odd)!r}.")
    round, attempt = _number(asked)
    try:
        statistic = statistic_from_config({name: value for name, value in asked.items() if name not in _KEY})
    except InvalidValue as error:
        raise Declined(str(error)) from error
    weights = _weights(silo, arrays) if isinstance(arrays, ArrayRecord) else {}
    return Question(round=round, attempt=attempt, statistic=statistic, weights=weights)


def _weights(silo: Silo, arrays: ArrayRecord) -> Weights:
    """The weights, whose names and shapes are looked at before any of them is unpacked."""
    silo.engine_for({name: tuple(array.shape) for name, array in arrays.items()})
    try:
        return from_record(arrays)
    except InvalidValue as error:
        raise Declined(str(error), Reason.WEIGHTS) from error


def _number(asked: ConfigRecord) -> tuple[int, int]:
    round, attempt = (asked.get(name) for name in ("round", "attempt"))
    if type(round) is not int or type(attempt) is not int:
        raise Declined(f"Expected round={round!r} and attempt={attempt!r} to be integers.")
    return round, attempt
