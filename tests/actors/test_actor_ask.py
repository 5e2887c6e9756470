"""Questions to actors: each ends with a reply, a failure, a refusal or a timeout."""

import mcpbus_actors as actors
import pytest
import trio
from actor_doubles import Recorder, Restless, restart, stage, stop
from mcpbus_actors import Ask, DeadLetterReason, testing


class Librarian:
    """Replies at once, twice, later, never, or when told to."""

    def __init__(self, cell):
        self.cell = cell
        self.kept = []
        self.outcomes = []

    def handle(self, message):
        match message:
            case Ask("now"):
                self.outcomes.append(message.reply("here"))
            case Ask("twice"):
                self.outcomes += [message.reply("one"), message.reply("two")]
            case Ask("raise"):
                raise ValueError
            case Ask("reply and raise"):
                message.reply("here")
                raise ValueError
            case Ask("exit"):
                self.cell.stop()
            case Ask():
                self.kept.append(message)
            case "answer":
                self.outcomes += [ask.reply("at last") for ask in self.kept]
            case "stop":
                self.cell.stop()
            case "raise":
                raise ValueError


@pytest.fixture
def librarian():
    made = []

    def make(cell):
        made.append(Librarian(cell))
        return made[-1]

    return make, made


async def test_a_reply_in_the_same_turn(librarian, autojump_clock):
    async with stage() as (system, _, _):
        assert await system.spawn(librarian[0]).ask("now", timeout=1) == "here"
        assert librarian[1][0].outcomes == [None]
        assert trio.current_time() == 0


async def test_a_reply_counts_though_the_actor_raises_after_it(librarian):
    async with stage() as (system, _, _):
        assert await system.spawn(librarian[0]).ask("reply and raise", timeout=1) == "here"


async def test_a_reply_in_a_later_turn(librarian, autojump_clock):
    async with stage() as (system, _, _), trio.open_nursery() as nursery:
        address = system.spawn(librarian[0])

        async def answer():
            await trio.sleep(2)
            address.tell("answer")

        nursery.start_soon(answer)
        assert await address.ask("later", timeout=5) == "at last"
        assert trio.current_time() == 2


async def test_the_second_reply_is_counted_and_dropped(librarian):
    async with stage() as (system, _, _):
        assert await system.spawn(librarian[0]).ask("twice", timeout=1) == "one"
        assert librarian[1][0].outcomes == [None, DeadLetterReason.LATE]
        assert system.statistics().late_replies == 1


async def test_no_reply_in_time_and_a_late_one(librarian, autojump_clock):
    async with stage() as (system, _, _):
        address = system.spawn(librarian[0], name="librarian")
        with pytest.raises(actors.AskTimeoutError, match=r"librarian did not reply within 3 s") as info:
            await address.ask("never", timeout=3)
        assert isinstance(info.value, TimeoutError)
        assert trio.current_time() == 3
        address.tell("answer")
        assert system.statistics().late_replies == 1
        assert not address._mailbox._watchers


async def test_a_cancelled_asker_leaves_nothing_behind(librarian, autojump_clock):
    async with stage() as (system, _, _):
        address = system.spawn(librarian[0])
        with trio.move_on_after(1) as scope:
            await address.ask("never", timeout=30)
        assert scope.cancelled_caught
        assert not address._mailbox._watchers
        address.tell("answer")
        assert system.statistics().late_replies == 1


async def test_a_refused_question():
    async with stage() as (system, probe, _):
        system.stop(probe.address)
        with pytest.raises(
            actors.AskRefusedError, match=r"^probe did not accept the question: stopped$"
        ) as info:
            await probe.address.ask("anything", timeout=1)
        assert info.value.discard is DeadLetterReason.STOPPED


@pytest.mark.parametrize("strategy", [None, restart])
async def test_the_actor_raises_on_the_question(librarian, strategy, autojump_clock):
    async with stage() as (system, _, _):
        address = system.spawn(librarian[0], name="librarian", strategy=strategy)
        with pytest.raises(
            actors.AskFailedError, match=r"^librarian ended before it replied: failed$"
        ) as info:
            await address.ask("raise", timeout=1)
        assert info.value.discard is DeadLetterReason.FAILED
        assert trio.current_time() == 0


@pytest.mark.parametrize("question", ["exit", "kept"])
async def test_the_actor_stops_with_the_question_in_hand(librarian, question, autojump_clock):
    async with stage() as (system, _, _), trio.open_nursery() as nursery:
        address = system.spawn(librarian[0])

        async def end_it():
            await trio.sleep(1)
            address.tell("stop")

        nursery.start_soon(end_it)
        with pytest.raises(actors.AskFailedError) as info:
            await address.ask(question, timeout=30)
        assert info.value.discard is DeadLetterReason.STOPPED
        assert trio.current_time() <= 1


async def test_at_a_restart_a_question_in_hand_fails_and_one_in_the_queue_is_for_the_fresh_instance(
    librarian, autojump_clock
):
    async with stage() as (system, _, _), trio.open_nursery() as nursery:
        address = system.spawn(librarian[0], strategy=restart)

        async def ask_what_is_kept():
            with pytest.raises(actors.AskFailedError) as info:
                await address.ask("kept", timeout=30)
            assert info.value.discard is DeadLetterReason.FAILED

        nursery.start_soon(ask_what_is_kept)
        await testing.wait_until_idle(system)
        restless = system.spawn(Restless)
        restless.tell("for ever")
        address.tell("raise")
        assert await address.ask("now", timeout=1) == "here"
        assert [len(each.kept) for each in librarian[1]] == [1, 0]
        system.stop(restless)
    assert trio.current_time() == 0


async def test_the_actor_stops_with_the_question_in_its_queue():
    async with stage() as (system, _, _):
        recorder = system.spawn(Recorder)
        # A backlog, so that the question waits; the actor stops before its turn.
        system.spawn(Recorder).tell(lambda _: [recorder.tell("filler") for _ in range(1000)])
        recorder.tell(stop)
        with pytest.raises(actors.AskFailedError):
            await recorder.ask("question", timeout=1)


async def test_ask_is_a_checkpoint_however_it_ends(librarian):
    async with stage() as (system, probe, _):
        address = system.spawn(librarian[0])
        with trio.testing.assert_checkpoints():
            await address.ask("now", timeout=1)
        with trio.testing.assert_checkpoints(), pytest.raises(actors.AskFailedError):
            await address.ask("exit", timeout=1)
        with trio.testing.assert_checkpoints(), pytest.raises(actors.AskRefusedError):
            await address.ask("now", timeout=1)
        assert repr(Ask("now", system.dispatcher)) == "<Ask 'now'>"
        assert probe.messages == []
