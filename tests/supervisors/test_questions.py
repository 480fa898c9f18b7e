"""Questions travel rootward and are answered one by one. Numbers are those of docs/kernel.md."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
from support.messages import has_message
from trio.testing import wait_all_tasks_blocked

from callboard.protocol.errors import ActorError, NobodyToAsk, Saturated
from callboard.protocol.events import Event
from callboard.protocol.kernel.questions import Answer, Question
from callboard.supervisors import HOLD, NOTED, PASS, Actor, OpenQuestions, QuestionTimeout, Ref, Root
from callboard.supervisors.introspection import count_sent, find, sent_by


class Person:
    """A front end that remembers what it was shown."""

    def __init__(self, name: str = "terminal") -> None:
        self.name = name
        self.shown: list[str] = []
        self.gone: list[tuple[str, str]] = []

    def asked(self, question: Question) -> None:
        self.shown.append(question.text)

    def closed(self, question_id: str, by: str) -> None:
        self.gone.append((question_id, by))


def question(text: str, **options: Any) -> Question:
    return Question(id=options.pop("id", ""), actor="", text=text, **options)


async def asks(me: Actor, text: str, options: dict[str, Any] | None = None) -> Any:
    return (await me.ask_person(question(text, **(options or {})))).value


def id_of(root: Root, text: str) -> str:
    return next(asked.id for asked in root.questions.open if asked.text == text)


async def test_55_a_thousand_open_questions_are_answered_in_random_order(root: Root) -> None:
    person = Person()
    with root.questions.attach(person):
        refs = [root.spawn(asks, f"question {number}", name=f"a{number}") for number in range(1000)]
        await wait_all_tasks_blocked()
        assert len(person.shown) == len(root.questions.open) == 1000
        assert all(ref.state == "waiting" for ref in refs)
        open_questions = list(root.questions.open)
        random.Random(3).shuffle(open_questions)
        for asked in open_questions:
            assert root.questions.answer(asked.id, f"answer to {asked.text}")
        for number, ref in enumerate(refs):
            assert await ref.result() == f"answer to question {number}"


async def test_55_asking_blocks_nobody_else(root: Root) -> None:
    async def parent(me: Actor) -> list[Any]:
        asking = me.spawn(asks, "well?")
        busy = me.spawn(works)
        done = await busy.result()
        me.root.questions.answer(id_of(me.root, "well?"), "yes")
        return [done, await asking.result()]

    async def works(me: Actor) -> str:
        await trio.sleep(5)
        return "worked"

    with root.questions.attach(Person()):
        assert await root.spawn(parent).result() == ["worked", "yes"]


async def test_55_one_actor_may_ask_several_at_once(root: Root) -> None:
    answers: dict[str, Any] = {}

    async def body(me: Actor) -> None:
        async def ask(text: str) -> None:
            answers[text] = (await me.ask_person(question(text))).value

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "a")
            nursery.start_soon(ask, "b")
        await me.receive()

    with root.questions.attach(Person()):
        ref = root.spawn(body)
        await wait_all_tasks_blocked()
        root.questions.answer(id_of(root, "a"), "1")
        await wait_all_tasks_blocked()
        assert ref.state == "waiting"
        root.questions.answer(id_of(root, "b"), "2")
        await wait_all_tasks_blocked()
        assert ref.state == "running"
    assert answers == {"a": "1", "b": "2"}


async def test_55_two_open_questions_can_not_have_one_id(root: Root) -> None:
    with root.questions.attach(Person()):
        root.spawn(asks, "first", {"id": "same"})
        await wait_all_tasks_blocked()
        second = root.spawn(asks, "second", {"id": "same"}, link=False)
        end = await second.wait()
        assert isinstance(end.error, ActorError)
        assert has_message(str(end.error), "supervisors.escalation.OpenQuestions._opened", id="same")
        assert root.questions.answer("same", "x")


async def test_55_a_question_beyond_the_most_fails_in_its_asker_and_harms_no_other(root: Root) -> None:
    person = Person()
    root.questions.most = 2
    with root.questions.attach(person):
        first, second = root.spawn(asks, "first"), root.spawn(asks, "second")
        await wait_all_tasks_blocked()
        end = await root.spawn(asks, "third", link=False).wait()
        assert isinstance(end.error, Saturated)
        assert has_message(str(end.error), "supervisors.escalation.OpenQuestions._opened.2", text="third", _open=2)
        assert sorted(person.shown) == ["first", "second"]
        assert first.state == second.state == "waiting"
        root.questions.answer(id_of(root, "first"), "1")
        assert await first.result() == "1"
        fourth = root.spawn(asks, "fourth")
        await wait_all_tasks_blocked()
        root.questions.answer(id_of(root, "fourth"), "4")
        root.questions.answer(id_of(root, "second"), "2")
        assert [await second.result(), await fourth.result()] == ["2", "4"]


def test_55_a_root_has_a_bound_for_its_questions_from_the_start() -> None:
    assert Root().questions.most == 10_000


async def test_56_the_first_answer_wins_and_the_others_are_told(root: Root, events: list[Event]) -> None:
    terminal, browser = Person("terminal"), Person("browser")
    with root.questions.attach(terminal), root.questions.attach(browser):
        ref = root.spawn(asks, "which?")
        await wait_all_tasks_blocked()
        assert terminal.shown == browser.shown == ["which?"]
        asked = id_of(root, "which?")
        assert root.questions.answer(asked, "this", by="browser") is True
        assert root.questions.answer(asked, "that", by="terminal") is False
        assert await ref.result() == "this"
        assert terminal.gone == browser.gone == [(asked, "browser")]
    kinds = [event.kind for event in events if event.id == asked]
    assert kinds == ["question.asked", "actor.waiting", "question.answered", "actor.busy"]


async def test_57_the_nearest_policy_that_answers_wins(root: Root) -> None:
    seen: list[str] = []

    def passes(asked: Question) -> Any:
        seen.append("parent passes")
        return PASS

    def answers(asked: Question) -> Any:
        seen.append("grandparent answers")
        return Answer(question=asked.id, value="from above")

    async def parent(me: Actor) -> Any:
        me.policy = passes
        return await me.spawn(asks, "may I?").result()

    async def grandparent(me: Actor) -> Any:
        me.policy = answers
        return await me.spawn(parent).result()

    person = Person()
    with root.questions.attach(person):
        assert await root.spawn(grandparent).result() == "from above"
    assert seen == ["parent passes", "grandparent answers"]
    assert person.shown == []


async def test_57_a_policy_may_hold_a_question_and_answer_later_or_pass_it_on(root: Root) -> None:
    held: list[str] = []
    decided = trio.Event()

    def hold(asked: Question) -> Any:
        held.append(asked.id)
        return HOLD

    async def parent(me: Actor) -> list[Any]:
        me.policy = hold
        one, two = me.spawn(asks, "one"), me.spawn(asks, "two")
        await wait_all_tasks_blocked()
        assert me.root.questions.answer(held[0], "answered by the parent", by=me.path)
        me.root.questions.pass_on(held[1])
        decided.set()
        return sorted([await one.result(), await two.result()])

    person = Person()
    with root.questions.attach(person):
        ref = root.spawn(parent)
        await decided.wait()
        assert len(person.shown) == 1
        root.questions.answer(root.questions.open[0].id, "answered by a person")
        assert await ref.result() == ["answered by a person", "answered by the parent"]


async def test_57_a_held_question_ends_with_its_holder(root: Root) -> None:
    async def parent(me: Actor) -> None:
        me.policy = lambda asked: HOLD
        me.spawn(asks, "held")
        await wait_all_tasks_blocked()
        raise ValueError("forgets all about it")

    await root.spawn(parent, link=False).wait()
    assert root.questions.open == ()


async def test_57_a_policy_that_raises_passes(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    async def parent(me: Actor) -> Any:
        me.policy = lambda asked: 1 / 0
        return await me.spawn(asks, "what?", {"default": "this"}).result()

    assert await root.spawn(parent).result() == "this"
    assert "the policy of /parent raised" in caplog.text


async def test_58_with_nobody_to_ask_the_default_is_taken_else_it_fails_at_once(
    root: Root, events: list[Event]
) -> None:
    assert await root.spawn(asks, "with default", {"default": "yes"}).result() == "yes"
    end = await root.spawn(asks, "without", link=False).wait()
    assert isinstance(end.error, NobodyToAsk)
    assert has_message(str(end.error), "supervisors.escalation._nobody", text="without")
    assert [event.data.by for event in events if event.kind == "question.answered"] == ["default"]
    assert [event.data.reason for event in events if event.kind == "question.expired"] == ["nobody"]


async def test_58_when_the_last_front_end_leaves_open_questions_are_given_up(root: Root) -> None:
    with root.questions.attach(Person("one")):
        with root.questions.attach(Person("two")):
            refs = [root.spawn(asks, "a", link=False), root.spawn(asks, "b", {"default": "d"})]
            await wait_all_tasks_blocked()
        assert len(root.questions.open) == 2
    assert isinstance((await refs[0].wait()).error, NobodyToAsk)
    assert await refs[1].result() == "d"


async def test_58_a_patient_root_keeps_questions_until_somebody_comes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with Root(patient=True) as root:
        with root.questions.attach(Person()):
            ref = root.spawn(asks, "still there?")
            await wait_all_tasks_blocked()
        await trio.sleep(1000)
        person = Person()
        with root.questions.attach(person):
            assert person.shown == ["still there?"]
            root.questions.answer(id_of(root, "still there?"), "yes")
            assert await ref.result() == "yes"


async def test_59_a_question_with_a_timeout_expires(root: Root, events: list[Event]) -> None:
    person = Person()
    with root.questions.attach(person):
        end = await root.spawn(asks, "quick!", {"timeout": 2.5, "default": "d"}, link=False).wait()
    assert isinstance(end.error, QuestionTimeout)
    assert isinstance(end.error, TimeoutError | Exception)
    assert has_message(str(end.error), "supervisors.escalation._too_late", seconds="2.5", text="quick!")
    assert trio.current_time() == pytest.approx(2.5)
    assert person.gone == [("q1", "timeout")]
    assert [event.data.reason for event in events if event.kind == "question.expired"] == ["timeout"]


async def test_60_the_question_of_an_interrupted_actor_is_withdrawn(root: Root, events: list[Event]) -> None:
    person = Person()
    with root.questions.attach(person):
        ref = root.spawn(asks, "anyone?")
        await wait_all_tasks_blocked()
        ref.cancel()
        await ref.wait()
        assert root.questions.open == ()
        assert person.gone == [("q1", "cancelled")]
        assert root.questions.answer("q1", "too late") is False
    assert [event.data.reason for event in events if event.kind == "question.expired"] == ["cancelled"]
    assert events[-1].kind == "actor.stopped"


async def test_60_an_answer_in_the_same_instant_as_the_cancel_closes_it_once(root: Root, events: list[Event]) -> None:
    with root.questions.attach(Person()):
        ref = root.spawn(asks, "now?")
        await wait_all_tasks_blocked()
        assert root.questions.answer("q1", "yes")
        ref.cancel()
        await ref.wait()
    closed = [event.kind for event in events if event.kind in ("question.answered", "question.expired")]
    assert closed == ["question.answered"]


async def test_61_a_front_end_that_comes_later_sees_what_is_open(root: Root) -> None:
    first, second = Person(), Person()
    with root.questions.attach(first):
        root.spawn(asks, "a")
        root.spawn(asks, "b")
        await wait_all_tasks_blocked()
        root.questions.answer(id_of(root, "a"), "done")
        with root.questions.attach(second):
            assert second.shown == ["b"]
            root.questions.answer(id_of(root, "b"), "done")


async def test_61_a_broken_front_end_is_detached_and_harms_nobody(root: Root, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Person):
        def asked(self, question: Question) -> None:
            raise OSError("screen on fire")

    class BrokenLater(Person):
        def closed(self, question_id: str, by: str) -> None:
            raise OSError("half a screen")

    person = Person()
    with root.questions.attach(Broken("old")), root.questions.attach(BrokenLater()), root.questions.attach(person):
        ref = root.spawn(asks, "a")
        await wait_all_tasks_blocked()
        assert root.questions.answer(id_of(root, "a"), "fine")
        assert await ref.result() == "fine"
        assert person.gone == [("q1", "")]
    assert "front end 'old' raised on a question and is detached" in caplog.text
    with root.questions.attach(Broken("alone")):
        end = await root.spawn(asks, "b", link=False).wait()
        assert isinstance(end.error, NobodyToAsk), "the only front end broke, so nobody is there"


async def test_61_a_front_end_may_answer_on_the_spot(root: Root) -> None:
    class Eager(Person):
        def asked(self, question: Question) -> None:
            super().asked(question)
            desk.answer(question.id, "at once", by=self.name)

    desk: OpenQuestions = root.questions
    later = Person("later")
    with desk.attach(Eager("eager")), desk.attach(later):
        assert await root.spawn(asks, "a").result() == "at once"
    assert later.shown == []


async def test_57_a_noted_question_goes_on_to_the_people_and_whoever_is_first_answers(root: Root) -> None:
    noted: list[str] = []

    async def parent(me: Actor) -> list[Any]:
        def policy(asked: Question) -> Any:
            noted.append(asked.id)
            return NOTED

        me.policy = policy
        by_parent, by_person = me.spawn(asks, "one"), me.spawn(asks, "two")
        await wait_all_tasks_blocked()
        two = id_of(root, "two")
        assert me.root.questions.answer(id_of(root, "one"), "mine", by=me.path)
        assert me.root.questions.answer(two, "theirs", by="terminal")
        assert not me.root.questions.answer(two, "mine too", by=me.path)
        return [await by_parent.result(), await by_person.result()]

    person = Person()
    with root.questions.attach(person):
        assert await root.spawn(parent).result() == ["mine", "theirs"]
    assert sorted(person.shown) == ["one", "two"]
    assert len(noted) == 2
    assert [by for _, by in person.gone] == ["/parent", "terminal"]


async def test_58_a_noted_question_stays_open_where_nobody_is(
    root: Root, autojump_clock: trio.testing.MockClock
) -> None:
    async def parent(me: Actor) -> list[Any]:
        me.policy = lambda asked: NOTED
        answered = me.spawn(asks, "one", {"default": "nobody's"})
        late = me.spawn(asks, "two", {"timeout": 60}, link=False)
        await wait_all_tasks_blocked()
        me.root.questions.answer(id_of(me.root, "one"), "mine")
        return [await answered.result(), type((await late.wait()).error)]

    assert await root.spawn(parent).result() == ["mine", QuestionTimeout]
    assert trio.current_time() >= 60


async def test_93_the_answer_to_a_secret_question_is_in_no_event(root: Root) -> None:
    heard: list[Event] = []
    stream = root.bus.open("run")
    with stream.listen(heard.append), root.questions.attach(Person()):
        ref = root.spawn(asks, "password?", {"secret": True}, stream=stream)
        await wait_all_tasks_blocked()
        root.questions.answer(id_of(root, "password?"), "hunter2")
        assert await ref.result() == "hunter2"
    (answered,) = (event.data for event in heard if event.kind == "question.answered")
    assert answered.value == ""
    assert "hunter2" not in str(heard)


async def test_59_a_question_without_a_timeout_can_be_expired_from_outside(root: Root) -> None:
    heard: list[Event] = []
    person = Person()
    stream = root.bus.open("run")
    with stream.listen(heard.append), root.questions.attach(person):
        ref = root.spawn(asks, "well?", stream=stream, link=False)
        await wait_all_tasks_blocked()
        id = id_of(root, "well?")
        assert root.questions.expire(id, 60)
        assert not root.questions.expire(id, 60)
        end = await ref.wait()
    assert isinstance(end.error, QuestionTimeout)
    assert has_message(str(end.error), "supervisors.escalation._too_late", seconds=60, text="well?")
    assert person.gone == [(id, "timeout")]
    assert [event.data.reason for event in heard if event.kind == "question.expired"] == ["timeout"]


async def test_102_a_question_is_one_message_to_the_root_and_its_answer_one_to_the_asker(root: Root) -> None:
    async def parent(me: Actor) -> list[Any]:
        me.policy = lambda asked: Answer(question=asked.id, value="policy") if asked.text == "known?" else PASS
        children = [me.spawn(asks, text, name=text) for text in ("known?", "by a person?", "never?")]
        values = [await child.result() for child in children[:2]]
        children[2].cancel()
        return values

    async def reads_later(me: Actor) -> list[Any]:
        said = await asks(me, "with mail waiting?")
        return [said, (await me.receive()).text]

    counted: dict[str, tuple[int, int]] = {}

    def count(event: Event) -> None:
        if event.kind == "question.answered":
            seen = find(root, event.actor) or root.actor
            counted[seen.name] = seen.mailbox.received, sent_by(seen)

    with root.questions.attach(Person()), count_sent(root), root.bus.listen(count):
        ref = root.spawn(parent)
        await wait_all_tasks_blocked()
        assert root.questions.answer(id_of(root, "by a person?"), "person")
        assert await ref.result() == ["policy", "person"]
        busy = root.spawn(reads_later)
        await busy.tell(question("some mail"))
        await wait_all_tasks_blocked()
        assert root.questions.answer(id_of(root, "with mail waiting?"), "past it")
        assert await busy.result() == ["past it", "some mail"]
        received, sent = root.actor.mailbox.received, sent_by(root.actor)
    assert counted == {"known?": (1, 1), "by a person?": (1, 1), "reads_later": (1, 1)}
    assert (received, sent) == (4, 3), "four questions, of which three were answered"


async def test_102_the_reply_to_an_ask_is_one_message_to_the_asker(root: Root) -> None:
    async def echo(me: Actor) -> None:
        async for message in me:
            me.reply(message)

    async def asker(me: Actor, to: Ref) -> int:
        for _ in range(3):
            await to.ask(question("?"))
        return me.mailbox.received

    assert await root.spawn(asker, root.spawn(echo)).result() == 3


async def test_102_what_is_told_to_the_root_and_is_no_question_is_a_dead_letter(
    root: Root, events: list[Event]
) -> None:
    assert await root.actor.ref.tell(Answer(question="q", value="v"))
    await wait_all_tasks_blocked()
    assert [event.data.reason for event in events if event.kind == "mail.dead"] == [
        "the root actor accepts only questions"
    ]


async def test_57_a_policy_whose_answer_is_none_fails_its_asker_and_not_the_root(root: Root) -> None:
    async def parent(me: Actor) -> Any:
        nothing: Any = None
        me.policy = lambda asked: Answer(question=asked.id, value=nothing)
        return await me.spawn(asks, "yes?", {"kind": "confirm"}, link=False).wait()

    assert isinstance((await root.spawn(parent).result()).error, AttributeError)
    assert await root.spawn(asks, "still there?", {"default": "yes"}).result() == "yes"
