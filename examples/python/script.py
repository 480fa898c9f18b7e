"""A script: one question, one answer. In a notebook: `await root.run(...)`, see docs/python-api.md#from-asyncio."""

import sys

import callboard

bot = callboard.Agent(name="bot", instructions="Be brief.")


def main(prompt: str) -> None:
    # region: peers 1
    print(callboard.run_sync(bot, prompt).unwrap())
    # endregion


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "What is a callboard?")
