"""All event sources of a stack: which function is fed from where."""

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any

from ...template.model import Function
from ..functions import Functions
from ..invocation import Answer, Invocation
from .described import RABBITMQ, Source
from .events import Event
from .rabbitmq import RabbitMqFeed
from .sqs import SqsFeed


class Feeds:
    """The sources of all functions; `amqp` is the address of RabbitMQ, "" where there is none."""

    def __init__(
        self,
        described: Iterable[Function],
        functions: Functions,
        aws: str,
        amqp: str,
        notice: Callable[[str], None],
    ) -> None:
        self._all = [(function.name, source) for function in described for source in function.sources]
        self._functions = functions
        self._aws = aws
        self._amqp = amqp
        self._notice = notice

    @property
    def described(self) -> str:
        """Queue and function of each feed, for people; "" for none."""
        return "  ".join(f"{source.queue} → {function}" for function, source in self._fed())

    def duties(self) -> list[Coroutine[Any, Any, None]]:
        """Coroutines that feed each source until cancelled; `notice` gets the sources that cannot be fed."""
        for function, source in self._all:
            if not self._can_feed(source):
                self._notice(
                    f"{function} is not fed from RabbitMQ's queue {source.queue}: give --amqp, or set DUECOURSE_AMQP"
                )
        return [self._duty(function, source) for function, source in self._fed()]

    def _fed(self) -> Iterator[tuple[str, Source]]:
        return ((function, source) for function, source in self._all if self._can_feed(source))

    def _can_feed(self, source: Source) -> bool:
        return source.kind != RABBITMQ or bool(self._amqp)

    def _duty(self, function: str, source: Source) -> Coroutine[Any, Any, None]:
        if source.kind == RABBITMQ:
            return RabbitMqFeed(source, self._amqp, partial(self._invoke, function), self._notice).keep()
        return SqsFeed(source, function, self._functions, self._aws, self._notice).keep()

    async def _invoke(self, function: str, event: Event) -> Answer:
        return await self._functions.invoke(function, Invocation(json.dumps(event).encode()))
