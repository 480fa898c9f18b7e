"""Environment variables that a sandboxed process inherits: an allowlist of names.

The process inherits three kinds of variables: those on a list of common ones (`PATH`, `HOME`, the language, the
terminal, directories of compilers and package managers); names in its own file; and names that the user grants (`env`).
A variable whose name or value looks like a secret must be granted: if the file names one, the user is asked. Variables
made for the process are not filtered: values of an agent's variables, `env` of a server.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec

PLAIN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|SHLVL|PWD|OLDPWD|HOSTNAME|TERM|TERM_PROGRAM(_VERSION)?|COLORTERM|COLUMNS|LINES"
    r"|NO_COLOR|FORCE_COLOR|CLICOLOR(_FORCE)?|LANG|LANGUAGE|LC_[A-Z]+|TZ|TMPDIR|TMP|TEMP|EDITOR|VISUAL|PAGER|CI"
    r"|DEBIAN_FRONTEND|AUTO_CONFIRM|WSL_DISTRO_NAME|CLAUDE_PROJECT_DIR"
    r"|XDG_((CONFIG|DATA|CACHE|STATE)_HOME|(CONFIG|DATA)_DIRS|RUNTIME_DIR|CURRENT_DESKTOP|SESSION_(TYPE|CLASS|ID))"
    r"|SSL_CERT_(FILE|DIR)|(CURL|REQUESTS)_CA_BUNDLE|(no|NO)_(proxy|PROXY)"
    r"|VIRTUAL_ENV(_PROMPT)?|CONDA_(PREFIX|DEFAULT_ENV|EXE|PYTHON_EXE|SHLVL|PROMPT_MODIFIER)"
    r"|PYENV_(ROOT|VERSION|SHELL|VIRTUAL_ENV)|PYTHON(PATH|HOME|UNBUFFERED|DONTWRITEBYTECODE|IOENCODING|UTF8|HASHSEED"
    r"|WARNINGS|USERBASE|PYCACHEPREFIX|SAFEPATH|NOUSERSITE|OPTIMIZE|ASYNCIODEBUG|FAULTHANDLER|BREAKPOINT|STARTUP"
    r"|TRACEMALLOC|DEVMODE|MALLOC|COERCECLOCALE)"
    r"|PIP_(CACHE_DIR|NO_CACHE_DIR|DISABLE_PIP_VERSION_CHECK|REQUIRE_VIRTUALENV|CONSTRAINT|DEFAULT_TIMEOUT|TIMEOUT|RETRIES"
    r"|CERT|TRUSTED_HOST|PREFER_BINARY|NO_BUILD_ISOLATION|BREAK_SYSTEM_PACKAGES|ROOT_USER_ACTION|PROGRESS_BAR|NO_INPUT)"
    r"|UV_(CACHE_DIR|PYTHON|PROJECT_ENVIRONMENT|LINK_MODE|OFFLINE|SYSTEM_PYTHON|TOOL_DIR|TOOL_BIN_DIR|PYTHON_INSTALL_DIR"
    r"|NO_PROGRESS|COMPILE_BYTECODE|FROZEN|LOCKED|NO_SYNC|NATIVE_TLS)"
    r"|POETRY_(HOME|CACHE_DIR|VIRTUALENVS_(CREATE|IN_PROJECT|PATH))"
    r"|NODE_(ENV|PATH|OPTIONS|EXTRA_CA_CERTS|NO_WARNINGS|DISABLE_COLORS|VERSION)|NVM_(DIR|BIN|INC)|VOLTA_HOME|PNPM_HOME"
    r"|FNM_(DIR|MULTISHELL_PATH)|npm_(execpath|node_execpath|lifecycle_(event|script)|package_(name|version|json)|command)"
    r"|(npm_config|NPM_CONFIG)_(prefix|PREFIX|cache|CACHE|loglevel|LOGLEVEL|yes|YES|fund|FUND|audit|AUDIT|offline|OFFLINE"
    r"|update_notifier|UPDATE_NOTIFIER|local_prefix|global_prefix|node_gyp|globalconfig|init_module|npm_version)"
    r"|(JAVA|JDK|MAVEN|M2|GRADLE|ANDROID|ANDROID_SDK|GRADLE_USER|VOLTA|DENO|SDKMAN)_(HOME|ROOT|DIR)"
    r"|GO(PATH|ROOT|BIN|CACHE|MODCACHE|FLAGS|OS|ARCH|ARM|AMD64|TOOLCHAIN|SUMDB|PRIVATE|NOSUMDB|NOPROXY|NOSUMCHECK|MAXPROCS"
    r"|EXPERIMENT|TMPDIR|ENV|WORK|DEBUG|GC)|GO111MODULE|CGO_(ENABLED|CFLAGS|LDFLAGS)"
    r"|CARGO_(HOME|TARGET_DIR|BUILD_JOBS|INCREMENTAL|TERM_COLOR|NET_OFFLINE)|RUSTUP_(HOME|TOOLCHAIN)"
    r"|RUST(FLAGS|DOCFLAGS|C|C_WRAPPER|_BACKTRACE|_LOG|_MIN_STACK|_TEST_THREADS)"
    r"|RBENV_(ROOT|VERSION|SHELL)|GEM_(HOME|PATH)|BUNDLE_(PATH|GEMFILE|WITHOUT|JOBS|FROZEN)|RUBY(LIB|OPT)"
    r"|ASDF_(DIR|DATA_DIR)|MISE_(DATA_DIR|SHELL|CONFIG_DIR)|NIX_(PATH|PROFILES|SSL_CERT_FILE)|IN_NIX_SHELL"
    r"|DOTNET_(ROOT|CLI_TELEMETRY_OPTOUT|NOLOGO)|PERL5?LIB|PERL5OPT|LUA_C?PATH"
    r"|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|C_INCLUDE_PATH|CPLUS_INCLUDE_PATH|PKG_CONFIG_(PATH|LIBDIR)|CC|CXX|AR|LD"
    r"|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|MAKEFLAGS|MAKELEVEL|CMAKE_(PREFIX_PATH|GENERATOR|BUILD_PARALLEL_LEVEL)"
    r"|(OMP|OPENBLAS|MKL|NUMEXPR)_NUM_THREADS|CUDA_(VISIBLE_DEVICES|HOME|PATH)|HF_(HOME|HUB_OFFLINE)"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|GIT_(PAGER|EDITOR|TERMINAL_PROMPT|CONFIG_NOSYSTEM|CONFIG_GLOBAL)"
    r"|LLM_(OUTPUT|ROOT_DIR|DUMP_RESULTS)|(CALLBOARD|LOKI)_(CONFIG_DIR|CONFIG_FILE|LOG_LEVEL)"
    r"|CALLBOARD_(SANDBOX|SANDBOX_BACKEND|CALL_FD|CALL_KEY|ASK_FD|TTY)"
)
"""Single names, not families of names: the next variable of a family may hold a token (`npm_config_otp`)."""

ADDRESSES = re.compile(
    r"((all|ftp|http|https)_proxy|(ALL|FTP|HTTP|HTTPS)_PROXY|PIP_(INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS)"
    r"|UV_(INDEX_URL|EXTRA_INDEX_URL|DEFAULT_INDEX|INDEX)|(npm_config|NPM_CONFIG)_(registry|REGISTRY)|GOPROXY"
    r"|(RUSTUP|CARGO)_[A-Z_]*(SERVER|ROOT|INDEX)|HF_ENDPOINT)"
)
"""Names of variables with addresses. They are inherited only if no part of the address could be a token."""

_PLAIN_ADDRESS = re.compile(
    r"((https?|socks5h?)://)?[A-Za-z0-9.-]+(:\d+)?(/[a-z+][a-z._+-]{0,23})*/?|direct|off|/[\w./+-]*"
)
_BETWEEN_ADDRESSES = re.compile(r"[\s,|]+")

_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|SESSION|DATABASE_URL|_DSN|CONNECTION_STRING|WEBHOOK"
    r"|(^|_)(PW|PWD|PASS|PIN|OTP|PRIVATE|CREDS?)(_|$)|^CALLBOARD_(CLUSTER|URL)$"
)
_NO_SECRETS = re.compile(
    r"CALLBOARD_CALL_KEY|XDG_SESSION_.*|DESKTOP_SESSION|SESSION_MANAGER|COLORTERM|GIT_AUTHOR_.*|(OLD)?PWD|GOPRIVATE"
)
_DOORS = frozenset(("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST"))
"""Variables that lead to programs of the user which sign, connect or start things on request."""

_SECRET_VALUE = re.compile(
    r"\w://[^/\s]*@"  # a URL with a user name, which may be a token, or a password
    r"|\b(password|passwd|pwd|token|secret|api_?key|sslpassword)\s*="  # libpq, ODBC, and query strings
    r"|\b(gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|npm_[A-Za-z0-9]{20}|pypi-[A-Za-z0-9]{20}|AKIA[A-Z0-9]{12}|eyJ)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LONGEST_FILE = 256 * 1024
"""Bytes read from each file in the search for names."""

MOST_FILES = 50
CODE = (".sh", ".bash", ".py", ".ts", ".js", ".mjs", ".rb", ".pl")


def looks_secret(name: str, value: str) -> bool:
    """Return True if a variable is treated as a secret, by its name or by its value."""
    return _is_secret_name(name) or _SECRET_VALUE.search(value) is not None


# Every process has the same names, and a name is no secret. Values are not cached: they would stay in memory.
@lru_cache(maxsize=1000)
def _is_secret_name(name: str) -> bool:
    if name in _DOORS:
        return True
    return _SECRET_NAME.search(name.upper()) is not None and not _NO_SECRETS.fullmatch(name)


def withheld(environ: Mapping[str, str], granted: Sequence[str], named: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of the variables that a process does not inherit.

    Args:
        granted: names, or patterns of names, that it inherits without a check.
        named: names that its own file contains.
    """
    named = frozenset(named)
    # A secret must be granted even if the program's file names it. Other variables need a known name, or that mention.
    return frozenset(
        name
        for name, value in environ.items()
        if not any(fnmatchcase(name, pattern) for pattern in granted)
        and (not (is_plain(name, value) or name in named) or looks_secret(name, value))
    )


def is_plain(name: str, value: str) -> bool:
    """Return True if programs commonly need a variable of this name.

    For one that holds addresses (`ADDRESSES`), also no part of the value may be a token. Other values are not checked.
    """
    if _is_address(name):
        return all(_PLAIN_ADDRESS.fullmatch(each) for each in _BETWEEN_ADDRESSES.split(value.strip()))
    return _is_plain_name(name)


@lru_cache(maxsize=1000)
def _is_address(name: str) -> bool:
    return ADDRESSES.fullmatch(name) is not None


@lru_cache(maxsize=1000)
def _is_plain_name(name: str) -> bool:
    return PLAIN.fullmatch(name) is not None


class Program(msgspec.Struct, frozen=True):
    """Words and hash of a program's text.

    Attributes:
        names: its words, among which may be names of variables.
        sum: SHA-256 of the text; "" without a file.
    """

    names: frozenset[str] = frozenset()
    sum: str = ""


NO_PROGRAM = Program()


def program_in(place: Path | None) -> Program:
    """Return words and hash of a program's file, or of the programs in a directory, which may call one another.

    Reads `MOST_FILES` files and `LONGEST_FILE` bytes of each at most. Empty for None.
    """
    if place is None:
        return NO_PROGRAM
    found: set[str] = set()
    sum = hashlib.sha256()
    for file in islice(_files(place), MOST_FILES):
        with contextlib.suppress(OSError), file.open("rb") as opened:
            text = opened.read(LONGEST_FILE)
            sum.update(text)
            found.update(_WORD.findall(text.decode("utf-8", "replace")))
    return Program(frozenset(found), sum.hexdigest())


def _files(program: Path) -> Iterator[Path]:
    if not program.is_dir():
        yield program
        return
    with contextlib.suppress(OSError):
        yield from sorted(file for file in program.iterdir() if file.suffix in CODE)
