#!/usr/bin/env bash
# Questions, colours and small helpers for bash tools and scripts:
#
#     source "$LLM_PROMPT_UTILS_FILE"
#     name=$(input "What is your name?")
#     if [[ $(confirm "Go on?") == 1 ]]; then ... fi
#
# A tool under Callboard has no terminal: its questions go to whoever is there to answer, wherever that is. Without
# Callboard they are asked on /dev/tty. Every helper that asks prints the answer to stdout and everything else to stderr,
# and returns 1 when nobody answers. `2>/dev/tty` behind a call is not needed and does no harm.
#
# AUTO_CONFIRM, set to anything but the empty text, answers the questions of `guard_operation` and `guard_path` with yes.

# shellcheck source=ask.sh
source "$(dirname "${BASH_SOURCE[0]}")/ask.sh"

# --- colours ---------------------------------------------------------------------------------------------------------

# _color CODE TEXT...: the text in this colour at a terminal (or with CLICOLOR_FORCE), else plain. A model reads it too.
_color() {
    if [[ -n ${NO_COLOR-} || (! -t 1 && -z ${CLICOLOR_FORCE-}) ]]; then
        printf '%s\n' "${*:2}"
    else
        printf '\033[%sm%s\033[0m\n' "$1" "${*:2}"
    fi
}

red() { _color 31 "$@"; }
green() { _color 32 "$@"; }
gold() { _color '38;5;178' "$@"; }
yellow() { _color 33 "$@"; }
blue() { _color 34 "$@"; }
magenta() { _color 35 "$@"; }
cyan() { _color 36 "$@"; }
white() { _color 97 "$@"; }

# --- messages, all on stderr -----------------------------------------------------------------------------------------

error() { red "ERROR: $*" >&2; }
warn() { yellow "WARN: $*" >&2; }
info() { cyan "INFO: $*" >&2; }
debug() { blue "DEBUG: $*" >&2; }
trace() { white "TRACE: $*" >&2; }

# --- questions -------------------------------------------------------------------------------------------------------

# input TEXT [DEFAULT]: a line of text.
input() {
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        _ask_for_one kind=text "text=$1" ${2+"default=$2"}
    else
        _tty_line "$1${2:+ [$2]} " || return 1
        printf '%s' "${REPLY:-${2-}}"
    fi
}

# password TEXT: a line of text that nobody may see.
password() {
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        _ask_for_one kind=text secret=1 "text=$1"
    else
        _tty_line "$1 " -s || return 1
        printf '%s' "$REPLY"
    fi
}

# confirm TEXT [FIELD...]: 1 for yes, 0 for no. Fields are told along with the question; see ask.sh.
confirm() {
    local answer
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        answer=$(_ask_for_one kind=confirm "text=$1" "${@:2}") || return 1
    else
        _tty_line "$1 (y/N) " || return 1
        answer=$REPLY
    fi
    case $answer in
        [yY]*) printf 1 ;;
        *) printf 0 ;;
    esac
}

# list TEXT OPTION...: the index of the chosen option, from 0.
list() {
    local -a options=("${@:2}")
    local answer
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        answer=$(_ask_for_one kind=choice "text=$1" "${options[@]/#/option=}") || return 1
        _index_of "$answer" "${options[@]}"
    else
        _tty_options "$1" "${options[@]}"
        while _tty_line "Number: "; do
            if [[ $REPLY =~ ^[0-9]+$ ]] && ((REPLY >= 1 && REPLY <= ${#options[@]})); then
                printf '%s' "$((REPLY - 1))"
                return 0
            fi
        done
        return 1
    fi
}

# checkbox TEXT OPTION...: the indexes of the chosen options, from 0, with blanks between them.
checkbox() {
    local -a options=("${@:2}") chosen=()
    local number
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        _callboard_ask kind=checkbox "text=$1" "${options[@]/#/option=}" || return 1
        for number in "${!options[@]}"; do
            _index_of "${options[number]}" "${_callboard_answer[@]}" >/dev/null && chosen+=("$number")
        done
    else
        _tty_options "$1" "${options[@]}"
        _tty_line "Numbers, with blanks between them: " || return 1
        for number in $REPLY; do
            [[ $number =~ ^[0-9]+$ ]] && ((number >= 1 && number <= ${#options[@]})) && chosen+=("$((number - 1))")
        done
    fi
    local IFS=' '
    printf '%s' "${chosen[*]}"
}

# editor TEXT: a longer text. On a terminal it is written in $EDITOR.
editor() {
    local file
    if [[ -n ${CALLBOARD_ASK_FD-} ]]; then
        _ask_for_one kind=text "text=$1"
        return
    fi
    file=$(mktemp) || return 1
    printf '%s\n' "$1" >&2
    if "${EDITOR:-vi}" "$file" </dev/tty >/dev/tty; then
        cat -- "$file"
        rm -f -- "$file"
    else
        rm -f -- "$file"
        return 1
    fi
}

# with_validate COMMAND VALIDATOR: runs the command, again and again, until the validator accepts what it printed. What
# the validator prints is told to the person. The command is a line of shell, as in: with_validate 'input "Name?"' check
with_validate() {
    local answer problem
    while true; do
        answer=$(eval "$1") || return 1
        # In a subshell of its own: validators may leave with `exit`.
        if problem=$("$2" "$answer" 2>&1); then
            printf '%s' "$answer"
            return 0
        fi
        warn "${problem:-that is no valid answer}"
    done
}
with_validation() { with_validate "$@"; }

# validate_present TEXT: whether there is anything in it.
validate_present() {
    [[ -n ${1//[[:space:]]/} ]] && return 0
    printf 'Please enter something.\n'
    return 1
}

# --- guards ----------------------------------------------------------------------------------------------------------

# guard_operation [TEXT]: ends the script unless a person agrees.
guard_operation() {
    [[ -n ${AUTO_CONFIRM-} ]] && return 0
    local answer
    answer=$(confirm "${1:-Do you want to go on?}" guard=1) || {
        error "nobody is there to agree to: ${1:-this operation}"
        exit 1
    }
    [[ $answer == 1 ]] && return 0
    error "the person said no to: ${1:-this operation}"
    exit 1
}

# guard_path PATH [TEXT]: as guard_operation, but only asks about paths outside of the working directory.
guard_path() {
    [[ -n ${AUTO_CONFIRM-} ]] && return 0
    [[ $# -ge 1 && -n $1 ]] || {
        error "guard_path needs a path"
        exit 1
    }
    local path here
    path=$(realpath -m -- "$1") && here=$(realpath -- .) || exit 1
    [[ $path == "$here" || $path == "${here%/}"/* ]] && return 0
    guard_operation "${2:-Work on '$path', which is outside of the working directory?}"
}

# --- files -----------------------------------------------------------------------------------------------------------

# patch_file FILE PATCH: prints what FILE becomes with the unified diff in the file PATCH; shows the change on stderr.
# FILE itself stays as it is. Only hunks count, not the names of files in the diff.
patch_file() {
    local work
    [[ -f $1 && -f $2 ]] || {
        error "patch_file needs a file and a file with a diff; got '$1' and '$2'"
        return 1
    }
    work=$(mktemp -d) || return 1
    cp -- "$1" "$work/file" && sed '/^@@/,$!d' -- "$2" >"$work/hunks"
    # The hunks alone, under a name of our own: whatever path the diff names is never followed.
    { printf -- '--- a/file\n+++ b/file\n' && cat -- "$work/hunks"; } >"$work/patch"
    if ! (cd -- "$work" && git apply --recount --whitespace=nowarn --directory= patch) >&2; then
        error "the diff does not fit '$1'"
        rm -rf -- "$work"
        return 1
    fi
    diff -u --label "$1" --label "$1 (patched)" -- "$1" "$work/file" >&2 || true
    cat -- "$work/file"
    rm -rf -- "$work"
}

# --- the system ------------------------------------------------------------------------------------------------------

# detect_os: solaris, macos, linux, bsd, windows or unknown.
detect_os() {
    case ${OSTYPE-} in
        solaris*) printf solaris ;;
        darwin*) printf macos ;;
        linux*) printf linux ;;
        *bsd* | dragonfly*) printf bsd ;;
        msys* | cygwin* | win*) printf windows ;;
        *) printf unknown ;;
    esac
}

# get_opener: the command that opens anything with the program made for it.
get_opener() {
    case $(detect_os) in
        macos) printf open ;;
        windows) printf start ;;
        *) printf xdg-open ;;
    esac
}

# open_link URL: in the default browser.
open_link() {
    "$(get_opener)" "$1" >/dev/null 2>&1
}

# --- not for tools ---------------------------------------------------------------------------------------------------

# _ask_for_one FIELD...: asks, and prints the one answer.
_ask_for_one() {
    _callboard_ask "$@" || return 1
    printf '%s' "${_callboard_answer[0]}"
}

# _index_of WORD WORD...: where it stands among the others, from 0.
_index_of() {
    local word=$1 at=0
    shift
    while (($#)); do
        if [[ $1 == "$word" ]]; then
            printf '%s' "$at"
            return 0
        fi
        shift
        at=$((at + 1))
    done
    return 1
}

# _tty_line PROMPT [-s]: a line from the terminal, in REPLY.
_tty_line() {
    if ! { : </dev/tty; } 2>/dev/null; then
        printf 'nobody is there to answer: %s\n' "$1" >&2
        return 1
    fi
    printf '%s' "$1" >/dev/tty
    IFS= builtin read -r ${2+"$2"} REPLY </dev/tty || return 1
    [[ -z ${2-} ]] || printf '\n' >/dev/tty
}

_tty_options() {
    local at=0 option
    {
        printf '%s\n' "$1"
        for option in "${@:2}"; do
            at=$((at + 1))
            printf '  %s) %s\n' "$at" "$option"
        done
    } >/dev/tty 2>/dev/null || true
}
