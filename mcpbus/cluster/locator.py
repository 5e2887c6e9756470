"""Who has what is not where it was looked for: the directory is asked, and what nobody has any more is taken over."""

from mcpbus.cluster.affinity import Affinity, listened_task, read_mentioned, session_of, task_of
from mcpbus.cluster.directory import StoredSession, is_released
from mcpbus.cluster.node import Node
from mcpbus.core.admission import ServerOverloaded
from mcpbus.core.hub import Hub
from mcpbus.protocol.http.head_validation import HeadValidator
from mcpbus.protocol.http.messages import HttpResponse, RequestHead
from mcpbus.transports.access_control import authorize
from mcpbus.transports.response_sinks import TaskResponse


class Locator:
    """Finds the process that has a session or a task.

    Args:
        node: Leads to the directory and to the others.
        bus: What is here.
        affinity: Tells for which process a request is.
        heads: Tells from where a request comes.
    """

    def __init__(self, node: Node, bus: Hub, affinity: Affinity, heads: HeadValidator) -> None:
        self._node = node
        self._bus = bus
        self._affinity = affinity
        self._heads = heads

    async def find(self, http: TaskResponse, body: bytes, ended: str) -> str | HttpResponse | None:
        """Find who has a session or a task that is not where it was looked for; take it over if nobody has it any more.

        Args:
            http: The request that names it.
            body: Its body.
            ended: A process that has ended, or this one.

        Returns:
            The process that has it; None if it is here, or nowhere; or why a request is refused.

        Raises:
            ServerOverloaded: There is no room for it; or the directory does not answer.
        """
        task, session = task_of(http.head) or listened_task(read_mentioned(body)), session_of(http.head)
        if task is not None and self._node.names.home_of(task) is not None:
            return await self._bus.tasks.seek(task, ended)
        if session is None or self._node.names.home_of(session) is None:
            return None  # something else may have been named as well, and led here
        await self._node.adoptions.settled(session)
        await self._node.hand_over.wait_gone(session)
        if session in self._bus.sessions and not self._affinity.may_be_elsewhere(http.head, body):
            return None
        kept = await self._look_up(http.head, session)
        # It is not to be taken over where it is believed to be.
        if (
            kept is not None
            and session not in self._bus.sessions
            and self._may_adopt(kept.ownership.home, ended)
        ):
            return await self._adopt(http, session, kept)
        return self._elsewhere(kept)

    def next_home(self, owner: str, ended: str, asked: list[str]) -> str:
        """Return who is to be asked next: who has a session, or who may take it over in the place of a process that ends.

        Args:
            owner: Who has it.
            ended: Who was asked last.
            asked: All who were asked for it to be taken over; who is next is added.
        """
        if self._node.hand_over.begun and (owner == ended or is_released(owner)):
            asked.append(self._node.anybody(but=asked))
            return asked[-1]
        return owner

    async def _look_up(self, head: RequestHead, session: str) -> StoredSession | None:
        """Look who has a session; None if nobody has, or where its client ends it and that cannot be known."""
        try:
            kept = await self._node.look(session)
        except ServerOverloaded:
            if head.verb == "DELETE" and session in self._bus.sessions:
                return None  # what is kept of it is removed later
            raise
        if kept is None:
            self._node.hand_over.forget(session)
        elif session in self._bus.sessions:
            self._node.records.check_for_takeovers(self._bus.sessions[session], kept.ownership)
        return kept

    def _may_adopt(self, owner: str, ended: str) -> bool:
        is_nobody = owner in {ended, self._node.home} or is_released(owner)
        return is_nobody and not self._node.hand_over.begun

    async def _adopt(
        self, http: TaskResponse, session: str, kept: StoredSession
    ) -> str | HttpResponse | None:
        principal, refused = await authorize(self._bus.backend, self._heads, http.head, http.peer)
        if refused is not None:
            return refused
        await self._node.adoptions.settled(session)  # somebody else may have been faster
        if session in self._bus.sessions:
            return None
        peer = self._heads.origin(http.head, http.peer)
        return self._elsewhere(await self._node.adoptions.adopt(kept, principal, peer))

    def _elsewhere(self, kept: StoredSession | None) -> str | None:
        return None if kept is None or kept.ownership.home == self._node.home else kept.ownership.home
