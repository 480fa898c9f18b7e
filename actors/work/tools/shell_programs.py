"""Programs that read and print, with the options that do no more than that.

The user who allows `find *` expects `find . -name '*.py'`, and not `find . -delete`. For the programs of this module, a
pattern therefore covers the options that are listed here. Any other option, and any word that may turn out to be one (a
glob or a variable at its beginning, words added by `xargs`), is covered only by a pattern that names it: `find *
-delete`, `sed -i *`.

    program in ANY       no option or argument has an effect
    program in _OPTIONS  these options have none; `sort -o`, `date -s`, `uniq IN OUT` are not among them
    find, sed, awk, git, tar   have a grammar of their own

Programs that are not listed write, run code or use the network by their nature (`cp`, `make`, `python3`): a pattern
that allows such a program allows all of its effects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from .shell_parser import FILE, MORE, is_known, written


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ANY = _words(
    """
    ls dir vdir cat tac head tail wc nl cut tr rev fold fmt expand unexpand paste join comm cmp od hexdump strings
    basename dirname realpath readlink pwd echo printf true false : test [ sleep seq whoami id groups uname nproc uptime
    free df du stat which type whereis printenv grep egrep fgrep jq column ps lscpu lsblk locale md5sum sha1sum
    sha224sum sha256sum sha384sum sha512sum b2sum cksum sum nm objdump readelf size cd exit set expr factor numfmt tty
    users who getconf command tsort pgrep getent lsof
    """
)


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options without an effect: letters without and with a value, long names of both kinds, the most operands."""

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    operands: int | None = None


def _long(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


_OPTIONS = {
    "sort": _Options(
        flags="bdfghinMRrVsuzmcC",
        valued="kSt",
        long=_long(
            """
            ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort
            numeric-sort month-sort random-sort reverse version-sort stable unique zero-terminated merge check
            key field-separator buffer-size parallel sort help version
            """
        ),
    ),
    "uniq": _Options(
        flags="cdDiuz",
        valued="fsw",
        long=_long(
            """
            count repeated all-repeated skip-fields ignore-case skip-chars unique zero-terminated check-chars
            group
            """
        ),
        operands=1,
    ),
    "date": _Options(
        flags="uRIj", valued="drv", long=_long("utc universal date reference iso-8601 rfc-3339 rfc-email"), operands=0
    ),
    "hostname": _Options(flags="fsiIdA", long=_long("fqdn short ip-address all-ip-addresses domain"), operands=0),
    "file": _Options(
        flags="bihkLnNrsv0", valued="Fe", long=_long("brief mime mime-type mime-encoding dereference version no-pad")
    ),
    "tree": _Options(
        flags="adflxCnhDspugiFrtcUvqNJXS",
        valued="LPI",
        long=_long(
            """
            noreport dirsfirst prune gitignore filelimit charset du si filesfirst sort matchdirs ignore-case
            """
        ),
    ),
    "diff": _Options(
        flags="quNrwbBiatycspdTEZe",
        valued="UxCWILF",
        long=_long(
            """
            brief unified recursive new-file ignore-all-space ignore-space-change ignore-blank-lines ignore-case
            text side-by-side context report-identical-files exclude exclude-from width color no-dereference
            minimal strip-trailing-cr suppress-common-lines label show-c-function expand-tabs normal left-column
            """
        ),
    ),
    "base64": _Options(flags="dD", valued="w", long=_long("decode wrap ignore-garbage"), operands=1),
    "xxd": _Options(flags="abeipu", valued="cglos", operands=1),
    "less": _Options(flags="RNSFXEen"),
    "man": _Options(),
    "shuf": _Options(flags="ezr", valued="in", long=_long("echo input-range head-count repeat zero-terminated")),
    "rg": _Options(
        flags="acFHIhiLlNnoPpqSsUuvwx0.",
        valued="ABCefgjmMtTrEd",
        long=_long(
            """
            files files-with-matches files-without-match count count-matches line-number no-line-number
            no-heading heading ignore-case smart-case case-sensitive fixed-strings word-regexp line-regexp
            invert-match hidden no-ignore no-ignore-vcs glob iglob type type-not type-list max-count max-depth
            max-filesize multiline multiline-dotall pcre2 only-matching replace after-context before-context
            context color colors sort sortr stats json vimgrep column no-column with-filename no-filename null
            quiet text trim unrestricted threads passthru follow regexp file no-messages no-config debug version
            max-columns
            """
        ),
    ),
    "fd": _Options(
        flags="HIuLpasigF0q1",
        valued="etdEcjS",
        long=_long(
            """
            hidden no-ignore no-ignore-vcs unrestricted follow full-path absolute-path case-sensitive
            ignore-case glob fixed-strings print0 extension type max-depth min-depth exact-depth exclude color
            threads size changed-within changed-before owner max-results quiet regex
            """
        ),
    ),
    "yq": _Options(
        flags="rejcnNMCPs",
        valued="opI",
        long=_long(
            """
            raw-output exit-status null-input no-colors prettyPrint output-format
            """
        ),
    ),
    "curl": _Options(
        flags="sSLfIivkgGN46#",
        valued="HXdmAeub",
        long=_long(
            """
            silent show-error location fail fail-with-body head include verbose insecure get no-buffer ipv4 ipv6
            compressed header request data data-raw data-urlencode json max-time connect-timeout retry
            retry-delay user-agent referer user http1.1 http2 progress-bar max-redirs form url
            """
        ),
    ),
    "tar": _Options(
        flags="ctxvzjJapkhSrun",
        valued="fC",
        long=_long(
            """
            create list extract get verbose gzip bzip2 xz zstd auto-compress preserve-permissions keep-old-files
            dereference file directory exclude strip-components no-same-owner no-same-permissions wildcards
            append update overwrite exclude-vcs sort mtime owner group numeric-owner no-recursion anchored
            """
        ),
    ),
}

_AWKS = frozenset(("awk", "gawk", "mawk", "nawk"))
_AWK_FUNCTIONS = _words(
    """
    length substr index split sub gsub match sprintf tolower toupper int sqrt exp log sin cos atan2 rand srand if while
    for
    printf print return gensub strtonum asort asorti strftime systime and or xor
    """
)

_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n\[]|\\.|\[\^?(?:\[:[a-z]+:\]|[^\]\\\[\n/])+\])*/I?)"
_SED_TEXT = r"(?:(?!(?P=d))[^\\\n\[]|\\.|\[\^?(?:\[:[a-z]+:\]|[^\]\\\[\n/|#,@!%+_~])+\])*"
_SED_COMMAND = re.compile(
    rf"""\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?\s*!?\s*)?
    (?:[pdnNDPhHgGx=]|q\d*|Q\d*|l\d*
      |s(?P<d>[/|\#,@!%+_~]){_SED_TEXT}(?P=d)(?:(?!(?P=d))[^\\\n]|\\.)*(?P=d)[gpiI0-9]*
    )\s*(?:;|\n|$)""",
    re.VERBOSE,
)
"""One command of a sed script: printing, deleting, substituting. Those that write, run, read or insert are not among
them. A bracket expression contains no character that could end the text: programs differ in whether it does.
"""

_LONGEST_SCRIPT = 2_000
"""Characters of a sed script that is read: the time of the expression may grow with their square."""

_DIFF = _long(
    """
            stat shortstat numstat dirstat summary compact-summary name-only name-status oneline graph decorate
            no-decorate all branches tags remotes author committer since after until before grep invert-grep
            all-match pretty format abbrev-commit no-abbrev-commit abbrev no-merges merges first-parent reverse
            follow cached staged color no-color word-diff color-words word-diff-regex ignore-all-space
            ignore-space-change ignore-blank-lines ignore-space-at-eol ignore-cr-at-eol unified patch no-patch
            raw full-index binary check exit-code quiet merge-base date relative-date left-right left-only
            right-only cherry-pick cherry-mark cherry topo-order date-order author-date-order max-count skip
            no-renames find-renames find-copies function-context no-prefix src-prefix dst-prefix submodule
            no-index text simplify-by-decoration source not no-walk children parents full-history ancestry-path
            dense sparse minimal patience histogram diff-algorithm inter-hunk-context cc diff-merges no-notes
            relative no-relative diff-filter pickaxe-regex pickaxe-all no-ext-diff no-textconv boundary
            patch-with-stat count objects no-color-moved color-moved ws-error-highlight indent-heuristic
            fixed-strings extended-regexp perl-regexp regexp-ignore-case numbered walk-reflogs min-parents
            max-parents email base ours theirs
            """
)
_LOG = _Options(flags="pwbsuzaiEFPWMCmcRtr0123456789gq", valued="nSGULlOX", long=_DIFF)

_GIT = {
    "status": _Options(
        flags="sbzv",
        valued="u",
        long=_long(
            """
            short branch porcelain long verbose untracked-files ignored show-stash ahead-behind no-ahead-behind
            column no-column ignore-submodules find-renames no-renames
            """
        ),
    ),
    **{
        name: msgspec.structs.replace(_LOG, valued="nSGULl")
        for name in ("diff", "log", "show", "whatchanged", "reflog")
    },
    **{
        name: msgspec.structs.replace(_LOG, valued="nSGUl")
        for name in ("rev-list", "diff-tree", "diff-index", "diff-files")
    },
    "shortlog": _Options(flags="snec", long=_long("summary numbered email group all no-merges since until")),
    "blame": _Options(
        flags="wselptfnMCbc",
        valued="LS",
        long=_long(
            """
            porcelain line-porcelain show-email show-name show-number since date abbrev root color-lines
            """
        ),
    ),
    "branch": _Options(
        flags="avrdDmMcCqfl",
        valued="u",
        long=_long(
            """
            all verbose remotes list show-current contains no-contains merged no-merged delete move copy force
            sort format column no-column color no-color set-upstream-to unset-upstream track no-track points-at
            abbrev no-abbrev quiet ignore-case create-reflog
            """
        ),
    ),
    "tag": _Options(
        flags="lndaf",
        valued="m",
        long=_long(
            """
            list sort contains no-contains merged points-at format delete annotate message column force
            """
        ),
    ),
    "rev-parse": _Options(
        flags="q",
        long=_long(
            """
            short abbrev-ref show-toplevel git-dir verify is-inside-work-tree show-prefix show-cdup
            absolute-git-dir git-common-dir symbolic-full-name all branches tags remotes quiet
            is-bare-repository show-object-format is-shallow-repository git-path
            """
        ),
    ),
    "ls-files": _Options(
        flags="cdmosuktvzi",
        valued="xX",
        long=_long(
            """
            cached deleted modified others ignored stage directory exclude-standard error-unmatch full-name
            unmerged killed exclude exclude-from exclude-per-directory no-empty-directory with-tree
            recurse-submodules eol format
            """
        ),
    ),
    "ls-tree": _Options(
        flags="rdtlz",
        long=_long(
            """
            name-only name-status full-name full-tree long abbrev format object-only
            """
        ),
    ),
    "describe": _Options(
        long=_long(
            """
            tags all always long dirty abbrev exact-match contains match exclude first-parent candidates
            """
        )
    ),
    "cat-file": _Options(flags="tpse", long=_long("batch-check batch batch-all-objects")),
    "merge-base": _Options(flags="a", long=_long("all octopus independent is-ancestor fork-point")),
    "name-rev": _Options(long=_long("tags name-only all always refs")),
    "show-ref": _Options(flags="dsq", long=_long("head heads tags verify hash abbrev quiet dereference")),
    "for-each-ref": _Options(
        long=_long(
            """
            count sort format points-at merged no-merged contains no-contains exclude
            """
        )
    ),
    "check-ignore": _Options(flags="qvzn", long=_long("quiet verbose non-matching no-index")),
    "count-objects": _Options(flags="vH", long=_long("verbose human-readable")),
    "grep": _Options(
        flags="aivwnlLcqhHopEGFPzIr",
        valued="efABCm",
        long=_long(
            """
            cached untracked ignore-case word-regexp line-number name-only files-with-matches
            files-without-match count extended-regexp basic-regexp fixed-strings perl-regexp color no-color
            break heading show-function function-context after-context before-context context max-depth and or
            not all-match quiet no-index invert-match only-matching column recursive max-count full-name text
            null
            """
        ),
    ),
    "stash": _Options(
        flags="pukaqS", valued="m", long=_DIFF | _long("include-untracked keep-index message index staged")
    ),
    "add": _Options(
        flags="vnfAuN",
        long=_long(
            """
            verbose dry-run force all no-all update intent-to-add renormalize refresh ignore-errors chmod sparse
            """
        ),
    ),
    "commit": _Options(
        flags="aqvsn",
        valued="mFCct",
        long=_long(
            """
            all message amend no-edit quiet verbose signoff no-verify allow-empty allow-empty-message dry-run
            date author fixup squash file short porcelain branch only include reset-author no-gpg-sign no-status
            cleanup trailer reuse-message
            """
        ),
    ),
    "checkout": _Options(
        flags="bBqftmpd",
        long=_long(
            """
            quiet force track no-track detach ours theirs merge conflict orphan patch no-guess guess progress
            no-progress
            """
        ),
    ),
    "switch": _Options(
        flags="cCdqftm",
        long=_long(
            """
            create force-create detach quiet force discard-changes track no-track orphan guess no-guess merge
            """
        ),
    ),
    "restore": _Options(flags="SWqp", valued="s", long=_long("staged worktree source quiet ours theirs patch")),
    "reset": _Options(
        flags="qN",
        long=_long(
            """
            soft mixed hard keep merge quiet no-refresh refresh intent-to-add
            """
        ),
    ),
    "merge": _Options(
        flags="qvn",
        valued="msX",
        long=_long(
            """
            no-ff ff ff-only squash no-commit commit abort continue quit message strategy strategy-option
            no-edit quiet verbose stat no-stat allow-unrelated-histories no-verify no-progress
            """
        ),
    ),
    "rebase": _Options(
        flags="qvnf",
        valued="sX",
        long=_long(
            """
            abort continue skip quit onto autostash no-autostash quiet strategy keep-base root
            """
        ),
    ),
    "pull": _Options(
        flags="qvrnp",
        long=_long(
            """
            rebase no-rebase ff-only ff no-ff quiet verbose tags no-tags prune autostash all depth no-edit
            progress
            """
        ),
    ),
    "push": _Options(
        flags="ufnqvd",
        long=_long(
            """
            set-upstream force force-with-lease dry-run tags follow-tags delete all quiet verbose no-verify
            atomic prune porcelain progress
            """
        ),
    ),
    "fetch": _Options(
        flags="qvapftn",
        long=_long(
            """
            all prune prune-tags tags no-tags quiet verbose depth unshallow dry-run force append multiple
            progress jobs
            """
        ),
    ),
    "cherry-pick": _Options(
        flags="xns", valued="mX", long=_long("abort continue skip quit no-commit mainline signoff strategy")
    ),
    "revert": _Options(
        flags="ns", valued="m", long=_long("abort continue skip quit no-commit no-edit mainline signoff")
    ),
    "mv": _Options(flags="fknv", long=_long("force dry-run verbose")),
    "rm": _Options(flags="frnq", long=_long("force cached dry-run quiet ignore-unmatch")),
    "clean": _Options(flags="dfnqxX", valued="e", long=_long("dry-run force quiet exclude")),
    "version": _Options(),
    "ls-remote": _Options(flags="htq", long=_long("heads tags refs quiet sort exit-code get-url symref branches")),
    "clone": _Options(
        flags="qvnl",
        valued="bo",
        long=_long(
            """
            branch depth single-branch no-single-branch no-tags recurse-submodules shallow-submodules filter
            bare mirror origin progress jobs quiet verbose no-checkout sparse
            """
        ),
    ),
    "apply": _Options(
        flags="RvN3", valued="pC", long=_long("check stat numstat summary index cached reverse 3way verbose whitespace")
    ),
    "init": _Options(flags="q", valued="b", long=_long("bare quiet initial-branch")),
    "archive": _Options(flags="lv0123456789", long=_long("format prefix list verbose")),
}
"""Subcommands of git. None of these options runs a program, or writes to a file that the line names."""

_GIT_VERBS = {
    "stash": ("push", "pop", "apply", "list", "show", "drop", "save", "branch", "clear", "create"),
    "reflog": ("show",),
}
_GIT_BEFORE = frozenset(
    ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects", "--version")
)
_GIT_LISTS = {
    "remote": (("-v",), ("show",), ("get-url",), ("--verbose",)),
    "worktree": (("list",),),
    "submodule": (("status",), ("summary",)),
    "config": (("--get",), ("--list",), ("-l",), ("--get-all",), ("--get-regexp",), ("list",), ("get",)),
    "bisect": (("log",), ("good",), ("bad",), ("skip",), ("reset",), ("start",)),
    "notes": (("list",), ("show",)),
}
"""Subcommands with known forms: the subcommand alone, or followed by one of these words."""

_FIND_DOES = frozenset(("-delete", "-fprint", "-fprint0", "-fprintf", "-fls", "-ok", "-okdir"))


def beyond(marked: Sequence[str]) -> tuple[str, ...] | None:
    """Return the words of a command that have, or may have, effects beyond reading and printing.

    () if the command only reads and prints; None if the program is not listed here.
    """
    program = written(marked[0])
    rest = marked[1:]
    if program in ANY:
        return ()
    if program == "find":
        return tuple(written(word) for word in rest if word in _FIND_DOES or _may_be_option(word))
    if program == "git":
        return tuple(_beyond_git(rest))
    if program in ("sed", "gsed"):
        return tuple(_beyond_sed(rest))
    if program in _AWKS:
        return tuple(_beyond_awk(rest))
    if program == "tar":
        return tuple(_beyond_tar(rest))
    if program == "curl":
        return tuple(_beyond_curl(rest))
    options = _OPTIONS.get(program)
    if options is None:
        return None
    operands: list[str] = []
    found = list(_not_listed(options, rest, operands))
    if program == "less":  # `+!command` runs it
        found += [each for each in operands if each.startswith("+")]
    if program == "date":  # another operand sets the clock
        operands = [each for each in operands if not each.startswith("+")]
    if options.operands is not None:
        found += operands[options.operands :]
    return tuple(found)


def names(pattern: str, word: str) -> bool:
    """Return True if a pattern names a word of a command, or the option that begins it."""
    for part in pattern.split():
        literal = part.partition("*")[0].partition("?")[0]
        if literal and word == literal:
            return True
        # `-o*` names `-oFILE`; `diff*` does not name `difftool`.
        if len(literal) > 1 and literal[0] == "-" and word.startswith(literal if literal != part else f"{part}="):
            return True
    return False


def _may_be_option(word: str) -> bool:
    """Return True if a word may turn out to begin with `-`, or to be several words."""
    return word == MORE or not (is_known(word[:1]) or word.startswith(FILE))


def _not_listed(options: _Options, words: Sequence[str], operands: list[str]) -> Iterator[str]:
    """Yield options that are not listed, and put the other words into `operands`."""
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            operands += words[at:]
            if MORE in words[at:]:
                yield written(MORE)
            return
        if _may_be_option(word):
            yield written(word)
        elif word.startswith("--"):
            if word.partition("=")[0] not in options.long:
                yield written(word)
        elif word.startswith("-") and len(word) > 1:
            for place, letter in enumerate(word[1:], 2):
                if letter in options.valued:
                    if place == len(word):
                        if at < len(words) and _may_be_option(words[at]):
                            yield written(words[at])
                        at += 1
                    break
                if letter not in options.flags:
                    yield written(word)
                    break
        else:
            operands.append(written(word))


def _beyond_git(rest: Sequence[str]) -> Iterator[str]:
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        if rest[at] == "-C" and at + 1 < len(rest) and not _may_be_option(rest[at + 1]):
            at += 2
        elif rest[at] in _GIT_BEFORE:
            at += 1
        else:
            yield written(rest[at])
            return
    if at >= len(rest):
        return
    verb, words = rest[at], rest[at + 1 :]
    if not is_known(verb):
        yield written(verb)
    elif verb in _GIT_LISTS:
        if words and (words[0],) not in _GIT_LISTS[verb]:
            yield written(words[0])
        yield from (written(word) for word in words[1:] if _may_be_option(word) or word.startswith("--"))
    elif verb not in _GIT:
        yield verb
    else:
        if verb in _GIT_VERBS and words and not words[0].startswith("-"):
            if words[0] not in _GIT_VERBS[verb]:
                yield written(words[0])
            words = words[1:]
        yield from _not_listed(_GIT[verb], words, [])


def _beyond_sed(rest: Sequence[str]) -> Iterator[str]:
    """Yield the words beyond `sed [-nErsuz] [-e] script file...`, and scripts with commands beyond `_SED_COMMAND`."""
    options = _Options(
        flags="nErsuz",
        long=_long(
            """
            quiet silent regexp-extended separate unbuffered null-data posix
            """
        ),
    )
    words, scripts, others = list(rest), [], []
    while words:
        word = words.pop(0)
        found = re.fullmatch(r"-([nErsuz]*)e|--expression", word)
        if found is not None and words:
            scripts.append(words.pop(0))
        elif word.startswith("--expression="):
            scripts.append(word.removeprefix("--expression="))
        elif word == "--":
            others += words
            break
        elif word.startswith("-") and len(word) > 1:
            yield from _not_listed(options, [word], [])
        else:
            others.append(word)
    if not scripts and others:
        scripts.append(others.pop(0))
    for script in scripts:
        if not is_known(script) or not _is_plain_sed(script):
            yield written(script)
    yield from (written(word) for word in others if _may_be_option(word))


def _is_plain_sed(script: str) -> bool:
    if len(script) > _LONGEST_SCRIPT:
        return False
    at = 0
    while at < len(script):
        if script[at:].strip() == "":
            return True
        found = _SED_COMMAND.match(script, at)
        if found is None:
            return False
        at = found.end()
    return True


def _beyond_awk(rest: Sequence[str]) -> Iterator[str]:
    words = list(rest)
    while words and words[0].startswith("-") and words[0] != "--":
        word = words.pop(0)
        if word in ("-F", "-v") and words:
            if _may_be_option(words.pop(0)):
                yield word
        elif not (word.startswith(("-F", "-v")) and len(word) > 2):
            yield written(word)
    if words and words[0] == "--":
        words.pop(0)
    if words and (not is_known(words[0]) or not _is_plain_awk(words[0])):
        yield written(words[0])
    yield from (written(word) for word in words[1:] if _may_be_option(word))


def _is_plain_awk(program: str) -> bool:
    """Return True if an awk program runs nothing and writes to no file, as far as its characters and names show."""
    text = re.sub(r"\|\||>=", " ", program)
    if re.search(r"[|@`]", text) or re.search(r"\bgetline\b|\bsystem\b|\bfunction\b|\bfunc\b", text):
        return False
    # `NR>1 {print}` compares; `{print > "f"}` writes. Quotes, slashes and comments could hide where a block ends.
    blocks = text if re.search(r'["/\\#]|\{[^{}]*\{', text) else "".join(re.findall(r"\{[^{}]*\}?", text))
    if ">" in blocks and "print" in text:
        return False
    calls = re.findall(r"([A-Za-z_]\w*)\(", text)
    return all(name in _AWK_FUNCTIONS for name in calls)


def _beyond_curl(rest: Sequence[str]) -> Iterator[str]:
    """Yield options that are not listed; `-o /dev/null` writes nothing, and `-w` may name a file."""
    words = list(rest)
    for option in ("-o", "--output", "-w", "--write-out"):
        for place in [place for place, word in enumerate(words[:-1]) if word == option]:
            value = words[place + 1]
            harmless = value == "/dev/null" if "o" in option[:3] else re.fullmatch(r"(?:%\{\w+\}|\\n|[^%@\\])*", value)
            if harmless and is_known(value):
                words[place : place + 2] = ["-s", "-s"]
    # `-so /dev/null` and the like: a group of letters that ends with `o`.
    for place, word in enumerate(words[:-1]):
        if re.fullmatch(r"-[sSLfIikv]+o", word) and words[place + 1] == "/dev/null":
            words[place : place + 2] = ["-s", "-s"]
    yield from _not_listed(_OPTIONS["curl"], words, [])


def _beyond_tar(rest: Sequence[str]) -> Iterator[str]:
    words = list(rest)
    if words and re.fullmatch(r"[a-zA-Z]+", words[0]):  # `tar xzf FILE`
        letters = words[0]
        if not set(letters) <= set("ctxvzjJapkhf"):
            yield letters
        words[0] = f"-{letters.replace('f', '')}f" if "f" in letters else f"-{letters}"
    yield from _not_listed(_OPTIONS["tar"], words, [])
    for place, word in enumerate(words):
        value = words[place + 1] if re.fullmatch(r"-[a-zA-Z]*f", word) and place + 1 < len(words) else ""
        value = word if word.startswith("--file=") or re.match(r"-[a-zA-Z]*f.", word) else value
        if ":" in value:  # a host, which is reached by running rsh
            yield written(word)
