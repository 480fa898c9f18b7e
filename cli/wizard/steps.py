"""The steps of the wizard: what is found, which model, a test call, where the key is kept, the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path

import msgspec

from ...actors.io.directories import config_file
from ...actors.io.env_file import env_file, read_dotenv
from ...actors.io.settings import load_settings
from ...actors.runs.model_checks import Checked
from ...actors.runs.setup.found import Offer, facts, of_provider, offers, providers_by_name
from ...actors.runs.setup.servers import Server
from ...actors.runs.setup.written import add_to_env_file, new_config, with_model, write_config
from ...actors.views.money import usd
from ...actors.work.models.facts import Facts
from ...protocol.errors import CallboardError
from . import keys
from .asking import Asker
from .trial import tried

_ANOTHER, _PASTE, _FETCH, _AGAIN = (
    "another model of these ...",
    "paste an API key ...",
    "fetch a very small model that runs on this machine (93 MB)",
    "look again",
)
_LOCAL = "smollm2"
_PRICES = "(prices: USD per million tokens)"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """A model to try; `typed` is a key that was typed for it, `""` where it has one or needs none."""

    offer: Offer
    model: str
    typed: str = ""

    def __repr__(self) -> str:
        return f"Chosen({self.offer.client.name}:{self.model})"


class Setup:
    """One walk through it.

    Args:
        home: the configuration directory.
        asker: puts the questions.
        starts: whether a conversation begins afterwards.
        servers: where model servers may be; None for the usual places.
    """

    def __init__(
        self, home: Path, asker: Asker, *, starts: bool = False, servers: Sequence[Server] | None = None
    ) -> None:
        self._home = home
        self._file = config_file(home)
        self._asker = asker
        self._starts = starts
        self._leave = "go on without; nothing is written" if starts else "leave; nothing is written"
        self._servers = servers

    def run(self) -> bool:
        """Whether there is a configuration now.

        Raises:
            KeyboardInterrupt, EOFError: the person leaves; so does `click.exceptions.Exit` in the test call.
            CallboardError: a file can't be read, written, or added to.
        """
        load_settings(self._home)  # what is wrong with a file that is there is said before anything is asked
        self._asker.say("Looking for API keys and for model servers on this machine ...")
        found = offers(os.environ, self._servers)
        while True:
            chosen = self._choose(found)
            if chosen is None:
                return False
            if isinstance(chosen, str):  # look again
                found = offers(os.environ, self._servers)
                continue
            tested = self._try(chosen)
            if tested is None:
                continue
            if self._write(tested):
                return True

    # --- which model

    def _choose(self, found: list[Offer]) -> Chosen | str | None:
        ready = [offer for offer in found if offer.models]
        for offer in found:
            if not offer.models:
                self._asker.say(f"  {offer.title}: {offer.why}, and has no model to chat with yet: {offer.hint}")
        if not ready:
            self._asker.say("  There is no key in the environment, and no server with a model answers.")
            if not _can_fetch(found):
                self._asker.say("  A very small model could run on this machine: pip install 'callboard[local]'")
        entries = [line_of(offer) for offer in ready]
        more = [*([_ANOTHER] if ready else []), _PASTE, *([_FETCH] if _can_fetch(found) else []), _AGAIN, self._leave]
        title = f"Which model is to answer? {_PRICES if ready else ''}".rstrip()
        picked = self._asker.pick(title, [*entries, *more])
        if picked < len(ready):
            return Chosen(offer=ready[picked], model=ready[picked].models[0])
        entry = more[picked - len(ready)]
        if entry == _ANOTHER:
            return self._choose_model(self._choose_offer(ready))
        if entry == _PASTE:
            return self._paste()
        if entry == _FETCH:
            self._fetch()
        return None if entry == self._leave else _AGAIN

    def _fetch(self) -> None:
        from ..pulling import pull_weights

        try:
            pull_weights(_LOCAL, quiet=False)
        except CallboardError as error:
            self._asker.say(f"  {error}")

    def _choose_offer(self, ready: list[Offer]) -> Offer:
        if len(ready) == 1:
            return ready[0]
        return ready[self._asker.pick("Whose?", [f"{offer.title}: {offer.why}" for offer in ready])]

    def _choose_model(self, offer: Offer, typed: str = "") -> Chosen:
        known = [str(about) for about in facts(offer, offer.models, os.environ)]
        picked = self._asker.search(f"Which model of {offer.title}? {_PRICES}", offer.models, known, free=True)
        return Chosen(offer=offer, model=picked if isinstance(picked, str) else offer.models[picked], typed=typed)

    def _paste(self) -> Chosen | str:
        names = providers_by_name()
        picked = self._asker.search("Whose key is it?", names)
        assert isinstance(picked, int)
        if names[picked] in self._clients():
            self._asker.say(f"  {self._file} has a client {names[picked]} already: its key is to be changed there.")
            return _AGAIN
        offer = of_provider(names[picked], os.environ, why="its key was typed")
        typed = self._asker.hidden(f"The key of {offer.title} (it is not shown)").strip()
        if not typed or not typed.isprintable() or " " in typed:
            self._asker.say("  That is no key." if typed else "  Nothing was typed.")
            return _AGAIN
        return Chosen(offer=offer, model=offer.models[0], typed=typed)

    def _clients(self) -> set[str]:
        return {client.name for client in load_settings(self._home)[0].clients}

    # --- the test call

    def _try(self, chosen: Chosen) -> Chosen | None:
        """What has answered, or is taken without an answer; None to choose anew."""
        while True:
            offer, model = chosen.offer, f"{chosen.offer.client.name}:{chosen.model}"
            self._asker.say(f"  asking {model} for one word ...")
            key = {offer.key: chosen.typed} if chosen.typed else {}
            checked = tried(model, self._text(chosen, ""), self._home, self._file, key)
            if checked.failed is None:
                self._asker.say(f"  {_answered(checked)}")
                return chosen
            message = checked.failed.message
            self._asker.say("\n".join(f"  {line}" for line in keys.hidden_in(message, chosen.typed).splitlines()))
            entries = [
                "choose something else",
                f"another model of {offer.title} ...",
                "try again",
                "keep it all the same",
            ]
            picked = self._asker.pick("That did not work. What now?", entries)
            if picked == 0:
                return None
            if picked == 1:
                chosen = self._choose_model(offer, chosen.typed)
            elif picked == 3:
                return chosen

    # --- the file

    def _text(self, chosen: Chosen, api_key: str) -> str:
        if self._file.exists():
            text = self._file.read_text(encoding="utf-8")
            return with_model(text, chosen.offer, chosen.model, api_key, file=str(self._file))
        return new_config(chosen.offer, chosen.model, api_key)

    def _write(self, chosen: Chosen) -> bool:
        """Whether it was written."""
        where, api_key = "", ""
        if chosen.typed:
            where = self._where_to_keep(chosen)
            api_key = f"{{{{{chosen.offer.key}}}}}" if where == "vault" else ""
        text = self._text(chosen, api_key)
        verb = "and start" if self._starts else ""
        if self._file.exists():
            before = self._file.read_text(encoding="utf-8")
            if before == text and not where:
                self._asker.say(f"  {self._file} says so already")
                return True
            diff = unified_diff(before.splitlines(), text.splitlines(), "as it is", "as it will be", lineterm="")
            self._asker.say("\n".join(diff))
        entries = [f"write {self._file} {verb}".rstrip(), "choose something else", self._leave]
        picked = self._asker.pick("Is that right?", entries)
        if picked == 2:
            raise EOFError
        if picked == 1:
            return False
        if where == "vault":
            keys.keep_in_vault(chosen.offer.key, chosen.typed, str(self._home))
        elif where == "file":
            add_to_env_file(env_file(self._home, os.environ), chosen.offer.key, chosen.typed)
        if where != "vault" and chosen.typed:
            os.environ[chosen.offer.key] = chosen.typed  # for what follows in this process
        write_config(self._file, text)
        self._asker.say(f"  wrote {self._file}")
        if where == "own":
            self._asker.say(f"  have your shell set it from now on: export {chosen.offer.key}=...")
        return True

    def _where_to_keep(self, chosen: Chosen) -> str:
        file, name = env_file(self._home, os.environ), chosen.offer.key
        ways = {"own": f"nowhere: I set {name} myself"}
        if name not in os.environ or read_dotenv(file).get(name) == os.environ[name]:
            ways = {"file": f"in {file}, as it is; only you can read that file"} | ways
        else:
            self._asker.say(f"  ({name} is set already, with another value, which would go before a .env file)")
        if keys.vault_works(str(self._home), name, self._asker):
            if keys.vault_has(str(self._home), name):
                self._asker.say(f"  (the vault has a secret {name} already)")
                ways |= {"vault": f"in the vault, encrypted, in the place of the {name} that is there"}
            else:
                ways = {"vault": "in the vault, encrypted"} | ways
        return [*ways][self._asker.pick(f"Where is {name} to be kept?", [*ways.values()])]


def what_to_write(home: Path, environ: dict[str, str], servers: Sequence[Server] | None = None) -> tuple[str, bool]:
    """What the wizard would write of itself, for those that ask no person; whether there is a model."""
    found = [offer for offer in offers(environ, servers) if offer.models]
    file = config_file(home, environ)
    if not found:
        return (
            "no key is in the environment and no model server answers. Set one of "
            + ", ".join(of_provider(name, environ, why="").key for name in providers_by_name()[:4])
            + ", or start Ollama or LM Studio, and call this again; or write `model: client:model` into "
            + str(file),
            False,
        )
    offer = found[0]
    try:
        if file.exists():
            return with_model(file.read_text(encoding="utf-8"), offer, offer.models[0], file=str(file)), True
    except (OSError, UnicodeDecodeError, CallboardError) as error:
        return f"{file}: {error}", False
    return new_config(offer, offer.models[0]), True


def line_of(offer: Offer) -> str:
    """An offer in a line: its model, what it costs, why it is here."""
    (about,) = facts(offer, offer.models[:1], os.environ)
    others = f"; {len(offer.models) - 1} more" if len(offer.models) > 1 and not offer.key else ""
    return f"{_described(offer.model, about)} ({offer.why}{others})"


def _described(name: str, about: Facts) -> str:
    known = str(about)
    return f"{name}: {known}" if known else name


def _answered(checked: Checked) -> str:
    answer = checked.answer
    assert answer is not None
    cost = f", {usd(answer.cost)}" if answer.cost else ""
    return f"it answered in {answer.seconds:.1f} s; {answer.input_tokens} + {answer.output_tokens} tokens{cost}"


def _can_fetch(found: list[Offer]) -> bool:
    from ...actors.work.models.engines import require_engine

    if any(offer.client.type == "local" for offer in found):
        return False
    try:
        require_engine()
    except CallboardError:
        return False
    return True
