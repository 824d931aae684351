"""Silos of one process that train together: the same charges, releases and failures as one by one.

Every silo is charged first; then one call trains them all; then each release is recorded, and only then does anything
leave. What befalls one silo on the way stays with it.
"""

from collections.abc import Sequence

from silos._errors import WorkerLost
from silos._job import FleetTrainer, Outcome
from silos._silo import Charged, Request, Silo
from silos._weights import Weights


def train_together(
    engine: FleetTrainer, asked: Sequence[tuple[Silo, Request] | Exception]
) -> list[Weights | Exception]:
    """One round of many silos.

    Args:
        engine: trains all of them, instead of each silo's own engine.
        asked: each silo with what it is asked, or an error that came before.

    Returns:
        In the order of `asked`, the weights that may leave each silo, or what `Silo.train` would have raised.

    Raises:
        WorkerLost: where there is nothing to train them with; they were charged, and nothing was released.
    """
    begun = [one if isinstance(one, Exception) else _begin(*one) for one in asked]
    charged = [one for one in begun if isinstance(one, Charged)]
    trained = zip(charged, _train(engine, charged), strict=True)
    ended = iter([_end(one, outcome) for one, outcome in trained])
    return [next(ended) if isinstance(one, Charged) else one for one in begun]


def _begin(silo: Silo, request: Request) -> Charged | Exception:
    try:
        return silo.begin(request)
    except Exception as error:  # noqa: BLE001  # whatever befalls one silo must not end the others' round
        return error


def _train(engine: FleetTrainer, charged: Sequence[Charged]) -> Sequence[Outcome]:
    try:
        return engine.train_all([one.job() for one in charged])
    except WorkerLost:
        raise
    except Exception as error:  # noqa: BLE001  # an error of the common computing befalls every silo in it
        return [error] * len(charged)


def _end(charged: Charged, outcome: Outcome) -> Weights | Exception:
    try:
        if isinstance(outcome, Exception):
            charged.fail(outcome)
            return outcome
        return charged.release(*outcome)
    except Exception as error:  # noqa: BLE001  # whatever befalls one silo must not end the others' round
        return error
