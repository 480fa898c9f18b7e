"""Setup of the first configuration, for `callboard setup` and for a chat without a configuration.

The steps are the available providers, the choice of a model, a test call, the storage of the key, and the file. The
test call is one small request exactly as later ones, before anything is written. A typed key is stored in the vault,
and never printed. `actors.runs.setup.needed` determines cheaply whether a setup is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio

from ...actors.io import temporary
from ...actors.io.directories import config_dir as configured
from ...actors.io.directories import config_file
from ...actors.io.environment import env_file, read_dotenv
from ...actors.io.settings import load_settings
from ...actors.io.vault.keys import Passphrase
from ...actors.io.vault.lookups import ForChecks
from ...actors.runs.model_checks import Checked, ask, check
from ...actors.runs.setup.address import ReachedAddress, lists_nothing, look_up, offer_of
from ...actors.runs.setup.detect import ModelServer, UsableProvider, facts, of_provider, offers, providers_by_name
from ...actors.runs.setup.write_config import add_to_env_file, new_config, with_model, write_config
from ...actors.views.money import usd
from ...actors.work.models.catalog import ModelCatalog
from ...actors.work.models.model_listing import ModelFacts
from ...protocol.environment import names_of
from ...protocol.errors import CallboardError, ConfigError
from ...supervisors.installation import install_command
from ..frame import act, choose_display
from ..render.text import counted, redrawable
from ..settings_warnings import already_printed
from ..vault_passphrase import vault_of
from .prompts import Asker, BackError, asker

if TYPE_CHECKING:
    from ...actors.runs.root import Root
    from ...supervisors import Actor


def run_setup(config_dir: str | None = None, *, starts: bool = False) -> bool:
    """Ask the user at the terminal; return True if there is a configuration now. Blocks: this thread must not run trio.

    Args:
        config_dir: value of the flag.
        starts: a chat starts afterwards, and the last question says so.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C; nothing was written.
        click.exceptions.Exit: Ctrl-C or another signal during the test call; nothing was written.
        CallboardError: the file or the vault can't be read or written.
    """
    already_printed()
    person = asker()
    try:
        done = Setup(configured(config_dir, os.environ)[0], person, starts=starts).run()
    except EOFError:
        done = False
    if not done:
        person.say("nothing was written; to start again: `callboard setup`")
    elif not starts:
        person.say('Try it: callboard ask "Say hello"')
    return done


def print_setup(config_dir: str | None) -> int:
    """Print the config.yaml that a setup without questions would write; returns the exit code.

    Raises:
        ConfigError: no model was found.
    """
    home = configured(config_dir, os.environ)[0]
    text, found = what_to_write(home, dict(os.environ))
    if not found:
        raise ConfigError(text)
    sys.stderr.write(f"callboard: with --no-input nothing is written; {config_file(home)} would be:\n")
    sys.stdout.write(text)
    return 0


_ANOTHER, _PASTE, _ADDRESS, _FETCH, _AGAIN = (
    "another model of these ...",
    "paste an API key ...",
    "type the address of a model server ...",
    "fetch a very small model that runs on this machine (93 MB)",
    "look again",
)
_OTHER = "another provider or server, by its address ..."
_LOCAL = "smollm2"
_PRICES = "(prices: USD per million tokens)"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Model to try; `typed` is a key that the user typed for it, `""` if the model has one or needs none."""

    offer: UsableProvider
    model: str
    typed: str = ""

    def __repr__(self) -> str:
        return f"Chosen({self.offer.client.name}:{self.model})"


class Setup:
    """Single pass through the wizard.

    Args:
        home: configuration directory.
        asker: asks the questions.
        starts: True if a chat starts afterwards.
        servers: possible model servers; None for the usual ones.
    """

    def __init__(
        self, home: Path, asker: Asker, *, starts: bool = False, servers: Sequence[ModelServer] | None = None
    ) -> None:
        self._home = home
        self._file = config_file(home)
        self._asker = asker
        self._starts = starts
        self._leave = "continue without a model; nothing is written" if starts else "leave; nothing is written"
        self._servers = servers

    def run(self) -> bool:
        """Run the wizard; return True if there is a configuration now.

        Raises:
            KeyboardInterrupt, EOFError: the user leaves; `click.exceptions.Exit` during the test call.
            CallboardError: a file can't be read, written, or extended.
        """
        load_settings(self._home)  # reports errors of an existing file before any question
        self._asker.say("Looking for API keys and for model servers on this machine ...")
        found = offers(os.environ, self._servers)
        while True:
            try:
                chosen = self._choose(found)
            except BackError:  # at the first question: there is no previous one
                chosen = None
            if chosen is None:
                return False
            if isinstance(chosen, str):  # look again
                found = offers(os.environ, self._servers)
                continue
            with suppress(BackError):  # back to the first question
                tested = self._try(chosen)
                if tested is not None and self._write(tested):
                    return True

    # --- which model

    def _choose(self, found: list[UsableProvider]) -> Chosen | str | None:
        ready = [offer for offer in found if offer.models]
        for offer in found:
            if not offer.models:
                self._asker.say(f"  {offer.title}: {offer.why}, and has no model to chat with yet: {offer.hint}")
        if not ready:
            self._asker.say("  No API key is set in the environment, and no model server answers.")
            if not _can_fetch(found):
                self._asker.say(f"  A very small model could run on this machine: {install_command('local')}")
        entries = [line_of(offer) for offer in ready]
        more = [
            *([_ANOTHER] if ready else []),
            _PASTE,
            _ADDRESS,
            *([_FETCH] if _can_fetch(found) else []),
            _AGAIN,
            self._leave,
        ]
        title = f"Which model should answer? {_PRICES if ready else ''}".rstrip()
        picked = self._asker.pick(title, [*entries, *more])
        if picked < len(ready):
            return Chosen(offer=ready[picked], model=ready[picked].models[0])
        entry = more[picked - len(ready)]
        with suppress(BackError):  # back to this list
            if entry == _ANOTHER:
                return self._another(ready)
            if entry == _PASTE:
                return self._paste()
            if entry == _ADDRESS:
                return self._address()
            if entry == _FETCH:
                self._fetch()
            return None if entry == self._leave else _AGAIN
        return self._choose(found)

    def _another(self, ready: list[UsableProvider]) -> Chosen:
        while True:
            offer = self._choose_offer(ready)
            try:
                return self._choose_model(offer)
            except BackError:
                if len(ready) == 1:
                    raise

    # --- the address of a server

    def _address(self) -> Chosen:
        """Return a model of a server whose address the user types.

        Raises:
            BackError: the user returns to the list of models.
        """
        text, key = "", ""
        while True:
            text = self._asker.text("Where is the server? Its address, such as http://gpu.example:8000/v1", text)
            if not text:
                self._asker.say("  Nothing was typed.")
                raise BackError
            reached, key = self._find_provider(text, key)
            with suppress(BackError):  # back to the address
                if reached.why is None or lists_nothing(reached):
                    return self._model_at(reached, key)
                if self._asker.pick("What now?", ["type another address", "choose something else"]) == 1:
                    break
        raise BackError

    def _find_provider(self, text: str, key: str) -> tuple[ReachedAddress, str]:
        """Query the address; return the result, and the key that the server accepts."""
        while True:
            self._asker.say(f"  asking {text} for its models ...")
            reached = look_up(text, key)
            if reached.why is None:
                self._asker.say(f"  {reached.base} has {counted(len(reached.models), 'model')}")
                return reached, key
            self._asker.say(f"  {_without_key(reached.said, key)}")
            if reached.why != "unauthorized":
                return reached, key
            try:
                key = self._asker.hidden(f"The API key for {reached.base} (it is not shown)").strip()
            except BackError:
                return reached, ""
            if not key:
                return reached, ""
            text = reached.base  # the key is sent only to the server that asked for it

    def _model_at(self, reached: ReachedAddress, key: str) -> Chosen:
        offer = offer_of(reached, {each.name: each.api_base for each in load_settings(self._home)[0].clients})
        if reached.models:
            return self._choose_model(offer, key)
        model = self._asker.text("Which model? Its name, as the server has it")
        if not model:
            raise BackError
        return Chosen(offer=offer, model=model, typed=key)

    def _fetch(self) -> None:
        from ..actions.models import pull_weights

        try:
            pull_weights(_LOCAL, quiet=False)
        except CallboardError as error:
            self._asker.say(f"  {error}")

    def _choose_offer(self, ready: list[UsableProvider]) -> UsableProvider:
        if len(ready) == 1:
            return ready[0]
        return ready[self._asker.pick("Which provider?", [f"{offer.title}: {offer.why}" for offer in ready])]

    def _choose_model(self, offer: UsableProvider, typed: str = "") -> Chosen:
        known = [str(about) for about in facts(offer, offer.models, os.environ)]
        picked = self._asker.search(f"Which model of {offer.title}? {_PRICES}", offer.models, known, free=True)
        return Chosen(offer=offer, model=picked if isinstance(picked, str) else offer.models[picked], typed=typed)

    def _paste(self) -> Chosen | str:
        names = providers_by_name()
        picked = self._asker.search("Whose key is it?", [*names, _OTHER])
        assert isinstance(picked, int)
        if picked == len(names):
            return self._address()
        if names[picked] in self._clients():
            self._asker.say(f"  {self._file} has a client {names[picked]} already: change its key there.")
            return _AGAIN
        offer = of_provider(names[picked], os.environ, why="its key was typed")
        try:
            typed = self._asker.hidden(f"The key of {offer.title} (it is not shown)").strip()
        except BackError:
            return self._paste()
        if not typed or not typed.isprintable() or " " in typed:
            self._asker.say("  This is not an API key." if typed else "  Nothing was typed.")
            return _AGAIN
        return Chosen(offer=offer, model=offer.models[0], typed=typed)

    def _clients(self) -> set[str]:
        return {client.name for client in load_settings(self._home)[0].clients}

    # --- the test call

    def _try(self, chosen: Chosen) -> Chosen | None:
        """Test a model; return the choice that works or that the user accepts anyway, or None to choose again."""
        while True:
            offer, model = chosen.offer, f"{chosen.offer.client.name}:{chosen.model}"
            self._asker.say(f"  asking {model} for one word ...")
            key = {offer.key: chosen.typed} if chosen.typed else {}
            checked = _tried(model, self._text(chosen, ""), self._home, self._file, key)
            if checked.failed is None:
                self._asker.say(f"  {_answered(checked)}")
                return chosen
            message = checked.failed.message
            self._asker.say("\n".join(f"  {line}" for line in _without_key(message, chosen.typed).splitlines()))
            entries = [
                "choose something else",
                f"another model of {offer.title} ...",
                "try again",
                "use it anyway",
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
        """Write the configuration after a confirmation; return False if the user wants to choose again."""
        where, api_key = "", ""
        if chosen.typed:
            where = self._where_to_keep(chosen)
            api_key = f"{{{{{chosen.offer.key}}}}}" if where == "vault" else ""
        text = self._text(chosen, api_key)
        verb = "and start" if self._starts else ""
        if self._file.exists():
            before = self._file.read_text(encoding="utf-8")
            if before == text and not where:
                self._asker.say(f"  {self._file} has this already")
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
            _store_in_vault(chosen.offer.key, chosen.typed, str(self._home))
        elif where == "file":
            add_to_env_file(env_file(self._home, os.environ), chosen.offer.key, chosen.typed)
        if where != "vault" and chosen.typed:
            os.environ[chosen.offer.key] = chosen.typed  # for the rest of this process
        write_config(self._file, text)
        self._asker.say(f"  wrote {self._file}")
        if where == "own":
            self._asker.say(f"  set it in your shell, for example in ~/.profile: export {chosen.offer.key}=...")
        return True

    def _where_to_keep(self, chosen: Chosen) -> str:
        file, name = env_file(self._home, os.environ), chosen.offer.key
        ways = {"own": f"not by Callboard: I set {name} myself"}
        if name not in os.environ or read_dotenv(file).get(name) == os.environ[name]:
            ways = {"file": f"in {file}, unencrypted; only you can read that file"} | ways
        else:
            self._asker.say(f"  ({name} is set already, with another value, which would go before a .env file)")
        if _vault_works(str(self._home), name, self._asker):
            if _vault_has(str(self._home), name):
                self._asker.say(f"  (the vault has a secret {name} already)")
                ways |= {"vault": f"in the vault, encrypted, in the place of the {name} that is there"}
            else:
                ways = {"vault": "in the vault, encrypted"} | ways
        return [*ways][self._asker.pick(f"Where should {name} be stored?", [*ways.values()])]


def what_to_write(
    home: Path, environ: dict[str, str], servers: Sequence[ModelServer] | None = None
) -> tuple[str, bool]:
    """Return the configuration that the wizard would write without questions, and True; or an error text, and False."""
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


def line_of(offer: UsableProvider) -> str:
    """Format an offer on one line: its model, its price, and the reason why it is available."""
    (about,) = facts(offer, offer.models[:1], os.environ)
    others = f"; {len(offer.models) - 1} more" if len(offer.models) > 1 and not offer.key else ""
    return f"{_described(offer.model, about)} ({offer.why}{others})"


def _described(name: str, about: ModelFacts) -> str:
    known = str(about)
    return f"{name}: {known}" if known else name


def _answered(checked: Checked) -> str:
    answer = checked.answer
    assert answer is not None
    cost = f", {usd(answer.cost)}" if answer.cost else ""
    return f"it answered in {answer.seconds:.1f} s; {answer.input_tokens} + {answer.output_tokens} tokens{cost}"


def _can_fetch(found: list[UsableProvider]) -> bool:
    from ...actors.work.models.engines import require_engine

    if any(offer.client.type == "local" for offer in found):
        return False
    try:
        require_engine()
    except CallboardError:
        return False
    return True


def _without_key(text: str, key: str) -> str:
    """Remove the key from a text."""
    return text.replace(key, "[redacted]") if key else text


def _vault_works(config_dir: str, name: str, asker: Asker) -> bool:
    """Return True if a key of this name can be stored in the vault; otherwise print the reason."""
    from importlib.util import find_spec

    if find_spec("pyrage") is None:
        asker.say(f"  (the encrypted vault needs an extra: {install_command('vault')})")
        return False
    try:
        file = vault_of(config_dir).file
        if file is None or (isinstance(file.opener, Passphrase) and file.opener.is_wanted):
            asker.say(
                "  (your vault needs a passphrase or a command; to store the key there later: "
                f"callboard vault add {name})"
            )
            return False
        file.read()
    except CallboardError as error:
        asker.say(f"  (the vault can't be opened: {error})")
        return False
    return True


def _vault_has(config_dir: str, name: str) -> bool:
    """Return True if the vault, which must be usable, has a secret of this name."""
    file = vault_of(config_dir).file
    return file is not None and name in file.read()


def _store_in_vault(name: str, value: str, config_dir: str) -> None:
    """Store a secret, replacing one of the same name.

    Raises:
        CallboardError: the vault can't be written.
    """
    file = vault_of(config_dir).file
    assert file is not None  # `_vault_works` has checked it

    def edit(secrets: dict[str, str]) -> None:
        secrets[name] = value

    file.change(edit)


def _tried(model: str, config: str, home: Path, file: Path, key: Mapping[str, str]) -> Checked:
    """Send one request to a model with a `config.yaml` that is not written yet, and return the check's result.

    Args:
        model: `client:model`.
        config: text of the file.
        home: configuration directory, whose vault is used.
        file: future path of the text, for messages.
        key: variable with the typed key, for this request alone.
    """
    progress = choose_display(sys.stderr, quiet=not redrawable(sys.stderr), verbose=False)

    async def request(me: Actor, root: Root) -> Checked:
        found = check(
            model, root.settings, ModelCatalog(root.settings, os.environ, vault=ForChecks(root.vault)), os.environ
        )
        return await ask(me, found, root.gateway, root.knowledge, trio.CapacityLimiter(1))

    with temporary.directory("setup-") as folder:
        draft = folder / "config.yaml"
        draft.write_text(config, encoding="utf-8")
        with _environment({names_of("config_file")[0]: str(draft), **key}):
            found = act(request, config_dir=str(home), progress=progress)
        if found.failed is None:
            return found
        message = found.failed.message.replace(str(draft), str(file))
        return msgspec.structs.replace(found, failed=msgspec.structs.replace(found.failed, message=message))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
