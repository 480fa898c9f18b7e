"""A tool that asks: its question reaches a person, and the answer the tool, without a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
import trio.testing
from support.messages import has_message, says
from support.tool_bench import Bench, option

from callboard.actors.work.call_clock import Clock
from callboard.actors.work.tools.files.runner_protocol import AskSocket
from callboard.protocol.errors import ToolFailed
from callboard.protocol.kernel.questions import Question
from callboard.supervisors import Actor, Root


async def test_read_in_bash_asks(bench: Bench) -> None:
    bench.answers = ["Ada Lovelace", "s3cret", "y", "two lines"]
    said = await bench.bash(
        """
        main() {
            read -r -p "Your name? " first last
            IFS= read -rsp "Password: " secret
            read -n 1 -p "Sure? " sure
            read
            printf '%s|%s|%s|%s|%s' "$first" "$last" "$secret" "$sure" "$REPLY" >> "$LLM_OUTPUT"
        }
        """
    )
    assert said == {"output": "Ada|Lovelace|s3cret|y|two lines"}
    assert [question.text for question in bench.questions[:3]] == ["Your name? ", "Password: ", "Sure? "]
    assert [question.secret for question in bench.questions] == [False, True, False, False]
    assert has_message(bench.questions[3].text, "work.tools.files.runner_protocol._question.4", tool="t")
    assert {question.actor for question in bench.questions} == {"/t"}


async def test_read_from_a_file_or_a_pipe_asks_nobody(bench: Bench) -> None:
    said = await bench.bash(
        """
        main() {
            while IFS= read -r line; do echo "file $line"; done < "$0" | head -1 >> "$LLM_OUTPUT"
            echo piped | { read -r word; echo "$word" >> "$LLM_OUTPUT"; }
            read -r here <<< "a string"; echo "$here" >> "$LLM_OUTPUT"
            exec 7< <(echo by number); read -r -u 7 words; echo "$words" >> "$LLM_OUTPUT"
        }
        """
    )
    assert said == {"output": "file main() {\npiped\na string\nby number\n"}
    assert bench.questions == []


async def test_input_getpass_and_stdin_ask_in_python(bench: Bench) -> None:
    bench.answers = ["Ada", "s3cret", "a line", "all of it"]
    said = await bench.python(
        """
        import getpass, sys

        def run():
            stdin = sys.stdin
            return [input("Name? "), getpass.getpass("Pass: "), stdin.readline(), stdin.read(), stdin.read()]
        """
    )
    assert said == ["Ada", "s3cret", "a line\n", "all of it\n", ""]
    assert [question.text for question in bench.questions[:2]] == ["Name? ", "Pass: "]
    assert bench.questions[1].secret


async def test_nobody_to_ask_is_an_error_the_tool_can_handle(bench: Bench) -> None:
    said = await bench.bash('main() { read -r -p "Go on? " x || echo "no: $?" >> "$LLM_OUTPUT"; }')
    assert said == {"output": "no: 1\n"}
    with pytest.raises(ToolFailed, match=says("work.tools.files.call._Call.check.2", status=1)) as failed:
        await bench.python("def run():\n    return input('Go on?')\n")
    assert has_message(failed.value.stderr, "supervisors.escalation._nobody", text="Go on?…")
    ours = str(Path(__file__).parents[5])  # a clone may lie in a directory of any name
    assert "callboard" not in failed.value.stderr.replace(ours, "").lower()


async def test_a_question_may_have_a_timeout(bench: Bench) -> None:
    class Silent:
        name = "silent"

        def asked(self, question: object) -> None: ...

        def closed(self, question_id: str, by: str) -> None: ...

    with bench.root.questions.attach(Silent()):
        said = await bench.bash('main() { read -t 0.05 -r x || echo late >> "$LLM_OUTPUT"; }')
    assert said == {"output": "late\n"}


async def test_time_does_not_pass_while_a_person_thinks(autojump_clock: trio.testing.MockClock) -> None:
    async with Root() as root:

        class Slow:
            name = "slow"

            def asked(self, question: Question) -> None:
                root.nursery.start_soon(self.answer, question)

            async def answer(self, question: Question) -> None:
                await trio.sleep(1000)
                root.questions.answer(question.id, "at last")

            def closed(self, question_id: str, by: str) -> None: ...

        async def call(me: Actor) -> bytes:
            clock = Clock(10)
            with AskSocket() as asking, clock.scope:
                os.write(asking.theirs, b"1\0text=Well?\0")
                clock.start()
                await trio.sleep(4)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(asking.serve, me, clock, "t")
                    await trio.sleep(1003)
                    heard = os.read(asking.theirs, 100)
                    await trio.sleep(1000)
            assert clock.scope.cancelled_caught
            return heard

        with root.questions.attach(Slow()):
            began = trio.current_time()
            ref = root.actor.spawn(call, link=False)
            assert await ref.result() == b"go\0ok\x001\0at last\0"
            assert trio.current_time() - began == pytest.approx(1010)


async def test_any_program_may_ask_and_is_asked_again_after_a_misfit(bench: Bench) -> None:
    bench.answers = ["purple", "red", "perhaps", "Y"]
    said = await bench.bash(
        r"""
        main() {
            python3 -c '
        import os
        fd = int(os.environ["CALLBOARD_ASK_FD"])
        os.write(fd, b"4\0kind=choice\0text=Colour?\0option=red\0option=green\0")
        os.write(fd, b"2\0kind=confirm\0text=Sure?\0")
        got = b""
        while got.count(b"\0") < 6:
            got += os.read(fd, 100)
        print(got)
        ' >> "$LLM_OUTPUT"
        }
        """
    )
    assert said == {"output": repr(b"ok\x001\x00red\x00ok\x001\x00yes\x00") + "\n"}
    assert [question.problem for question in bench.questions] == [
        None,
        "'purple' is not among the options",
        None,
        "answer yes or no",
    ]


async def test_an_answerer_that_never_fits_is_given_up(bench: Bench) -> None:
    bench.answers = ["no such thing"] * 20
    said = await bench.bash(
        'main() { _callboard_ask kind=choice option=a 2>> "$LLM_OUTPUT" || echo "gave up" >> "$LLM_OUTPUT"; }'
    )
    assert said == {"output": "the answer can't be used: 'no such thing' is not among the options\ngave up\n"}
    assert len(bench.questions) == 5


async def test_what_is_no_question_is_refused(bench: Bench) -> None:
    for words, complaint in (
        (r"rubbish\0", "must begin with the number"),
        (r"00000000199999999999\0", "must begin with the number"),
        (r"0\0", "must begin with the number"),
        (r"1\0kind\0", "name=value"),
        (r"1\0kind=party\0", "one of choice, text"),
        (r"1\0kind=choice\0", "needs options"),
        (r"1\0timeout=soon\0", "number of seconds"),
    ):
        said = await bench.bash(
            """
            main() {
                printf "$argc_words" >&"$CALLBOARD_ASK_FD"
                cat <&"$CALLBOARD_ASK_FD" | tr '\\0' ' ' >> "$LLM_OUTPUT"
            }
            """,
            arguments=[option("words")],
            words=words,
        )
        assert complaint in said["output"]
    assert bench.questions == []


async def test_an_endless_question_is_refused(bench: Bench) -> None:
    said = await bench.bash(
        """
        main() {
            { printf '1\\0text='; yes | head -c 3000000; } 2>/dev/null >&"$CALLBOARD_ASK_FD" || true
            echo alive >> "$LLM_OUTPUT"
        }
        """
    )
    assert said == {"output": "alive\n"}
    assert bench.questions == []


async def test_a_call_that_ends_withdraws_its_question(bench: Bench) -> None:
    closed_by = []

    class Silent:
        name = "silent"

        def asked(self, question: object) -> None: ...

        def closed(self, question_id: str, by: str) -> None:
            closed_by.append(by)

    with bench.root.questions.attach(Silent()):
        said = await bench.bash(
            """
            main() {
                printf '1\\0text=Anybody?\\0' >&"$CALLBOARD_ASK_FD"
                echo gone >> "$LLM_OUTPUT"
            }
            """
        )
    assert said == {"output": "gone\n"}
    assert closed_by == ["cancelled"]
    assert bench.root.questions.open == ()


async def test_a_program_that_lost_the_socket_writes_to_no_other_file(bench: Bench) -> None:
    bench.write("child.sh", 'source "$LLM_PROMPT_UTILS_FILE"; input "Anybody?" || echo "status $?"')
    said = await bench.python(
        """
        import os, subprocess
        def run():
            ask = int(os.environ["CALLBOARD_ASK_FD"])
            os.set_inheritable(ask, False)
            with open("/dev/null", "rb") as other:
                child = ["bash", os.path.join(os.path.dirname(__file__), "child.sh")]
                command = f'exec {ask}>' + os.environ["LLM_TOOL_CACHE_DIR"] + '/other; exec "$@"'
                subprocess.run(["bash", "-c", command, "-", *child], stdin=other)
            with open(os.environ["LLM_TOOL_CACHE_DIR"] + "/other") as other:
                return [other.read()]
        """
    )
    assert said == [""]
    assert "status 1" in bench.printed
    assert any(has_message(line, "work.tools.files.runners.run.ask") for line in bench.printed)


async def test_bytes_of_stdin_are_asked_for_too(bench: Bench) -> None:
    bench.answers = ["é"]
    assert await bench.python("import sys\ndef run(): return [str(sys.stdin.buffer.read())]\n") == [
        repr("é\n".encode())
    ]


async def test_descriptors_that_scripts_use_are_free(bench: Bench) -> None:
    bench.answers = ["yes"]
    said = await bench.bash(
        """
        main() {
            exec 3>/dev/null 4>/dev/null 5>/dev/null 6>/dev/null 7>/dev/null 8>/dev/null 9>/dev/null 200>/dev/null
            read -r x; echo "$x" >> "$LLM_OUTPUT"
        }
        """
    )
    assert said == {"output": "yes\n"}
