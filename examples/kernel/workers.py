"""A pool of workers: one that crashes is started again, and one that is unsure asks a person.

python examples/kernel/workers.py
"""

from __future__ import annotations

import trio

from callboard.supervisors import Actor, ActorFailed, ChildSpec, Message, OpenQuestions, Question, Ref, Root, Supervisor

NAMES = ("ann", "bob", "cyd")


class Job(Message, frozen=True):
    number: int


async def worker(me: Actor[Job]) -> None:
    """Squares numbers, one job at a time. Asks about large ones, and crashes over 13."""
    async for job in me:
        if job.number == 13:
            raise ValueError("13 brings bad luck")
        if job.number >= 100:
            answer = await me.ask_person(Question(id="", actor="", text=f"square {job.number}?", kind="confirm"))
            if answer.value == "no":
                me.reply(None)
                continue
        me.reply(job.number**2)


async def order(worker: Ref[Job], number: int) -> None:
    """Ask a worker and wait for its reply. Its ref and the mail it has not read survive its restart."""
    try:
        print(f"{number}: {await worker.ask(Job(number), timeout=5)} (by {worker.name})")
    except ActorFailed as crash:
        print(f"{number}: {crash}")


class Person:
    """A front end. This one answers at once; a real one shows the question, and answers when the person does."""

    name = "the person"

    def __init__(self, desk: OpenQuestions) -> None:
        self._desk = desk

    def asked(self, question: Question) -> None:
        self._desk.answer(question.id, "yes" if "100" in question.text else "no", by=self.name)

    def closed(self, question_id: str, by: str) -> None:
        pass


async def main() -> None:
    """Six jobs for three workers. Leaving the block of the root ends all that runs below it."""
    pool = Supervisor(*(ChildSpec(name=name, body=worker) for name in NAMES), intensity=3, period=5)
    async with Root(signals=True) as root:
        with root.questions.attach(Person(root.questions)):
            await root.start(pool, name="workers")
            workers: list[Ref[Job]] = [ref for name in NAMES if (ref := pool.child(name)) is not None]
            async with trio.open_nursery() as nursery:
                for index, number in enumerate((2, 13, 100, 5, 7, 200)):
                    nursery.start_soon(order, workers[index % len(workers)], number)


if __name__ == "__main__":
    trio.run(main)
