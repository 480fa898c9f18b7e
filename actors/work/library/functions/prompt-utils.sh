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

# _coloured: whether what is printed here is for people: at a terminal, or with CLICOLOR_FORCE. A model reads it too.
_coloured() { [[ -z ${NO_COLOR-} && (-t 1 || -n ${CLICOLOR_FORCE-}) ]]; }

# The same as variables: "${red}no${default}".
# shellcheck disable=SC2034 # they are for tools
if _coloured; then
    red=$'\033[31m' green=$'\033[32m' gold=$'\033[38;5;178m' yellow=$'\033[33m' blue=$'\033[34m'
    magenta=$'\033[35m' cyan=$'\033[36m' white=$'\033[97m' gray=$'\033[90m'
    bold=$'\033[1m' underlined=$'\033[4m' default=$'\033[0m'
else
    red='' green='' gold='' yellow='' blue='' magenta='' cyan='' white='' gray='' bold='' underlined='' default=''
fi

# _color CODE TEXT...: the text in this colour, or plain.
_color() {
    if _coloured; then
        printf '\033[%sm%s\033[0m\n' "$1" "${*:2}"
    else
        printf '%s\n' "${*:2}"
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

# --- messages --------------------------------------------------------------------------------------------------------

# They go where the tool has sent its stdout: `info "Found it" >> "$LLM_OUTPUT"`, `text=$(info "Found it")`. Left alone
# they go to stderr, since a script's stdout is its result.
error() { _say red "ERROR: $*"; }
warn() { _say yellow "WARN: $*"; }
info() { _say cyan "INFO: $*"; }
debug() { _say blue "DEBUG: $*"; }
trace() { _say white "TRACE: $*"; }
success() { _say green "SUCCESS: $*"; }

# To the person, always.
show_error() { red "✘ $*" >&2; }
show_success() { green "✔ $*" >&2; }

# _say COLOUR TEXT: `$$` is the script itself, in its subshells too.
_say() {
    if [[ -f /dev/fd/1 || (-e /proc/$$/fd/1 && ! /dev/fd/1 -ef /proc/$$/fd/1) ]]; then
        "$@"
    else
        "$@" >&2
    fi
}

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

# range TEXT MIN CURRENT MAX: a whole number from MIN to MAX; CURRENT if nothing is entered.
range() {
    local min=$2 current=$3 max=$4 answer
    if [[ ! "$min $current $max" =~ ^-?[0-9]+\ -?[0-9]+\ -?[0-9]+$ ]]; then
        error "range needs three whole numbers; got '$min', '$current' and '$max'" >&2
        return 1
    fi
    while answer=$(input "$1 ($min to $max)" "$current"); do
        if [[ $answer =~ ^(-?)0*([0-9]{1,15})$ ]]; then
            answer=$((${BASH_REMATCH[1]}${BASH_REMATCH[2]}))
            if ((answer >= min && answer <= max)); then
                printf '%s' "$answer"
                return 0
            fi
        fi
        show_error "'$answer' is no whole number from $min to $max"
    done
    return 1
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
        show_error "${problem:-that is no valid answer}"
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
        error "nobody is there to agree to: ${1:-this operation}" >&2
        exit 1
    }
    [[ $answer == 1 ]] && return 0
    error "the person said no to: ${1:-this operation}" >&2
    exit 1
}

# guard_path PATH [TEXT]: as guard_operation, but only asks about paths outside of the working directory.
guard_path() {
    [[ -n ${AUTO_CONFIRM-} ]] && return 0
    [[ $# -ge 1 && -n $1 ]] || {
        error "guard_path needs a path" >&2
        exit 1
    }
    local path here
    path=$(realpath -m -- "$1") && here=$(realpath -- .) || exit 1
    [[ $path == "$here" || $path == "${here%/}"/* ]] && return 0
    guard_operation "${2:-Work on '$path', which is outside of the working directory?}"
}

# --- files -----------------------------------------------------------------------------------------------------------

# patch_file FILE PATCH: prints what FILE becomes with the diff in the file (or pipe) PATCH; shows the change on stderr.
# FILE itself stays as it is. A hunk goes where its header says if its lines stand there, else to the first place after
# the hunk before where they do, so `@@ ... @@` is a header too. Only hunks count, not the names of files in the diff.
patch_file() {
    local patched
    if [[ ! -f $1 || ! -r $2 || -d $2 ]]; then
        error "patch_file needs a file and a file with a diff; got '$1' and '$2'" >&2
        return 1
    fi
    # The x keeps the newlines at the end, which a substitution drops.
    if ! patched=$(_patched "$1" "$2" && printf x); then
        error "the diff does not fit '$1'" >&2
        return 1
    fi
    patched=${patched%x}
    diff -u --label "$1" --label "$1 (patched)" -- "$1" <(printf '%s' "$patched") >&2 || true
    printf '%s' "$patched"
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

# _patched FILE PATCH
_patched() {
    local ends=1
    [[ ! -s $1 || -n $(tail -c 1 -- "$1" | tr -d '\n') ]] && ends=0
    _callboard_file=$1 _callboard_patch=$2 _callboard_ends=$ends awk '
        function fail(why) {
            print why > "/dev/stderr"
            exit 1
        }
        function fits(hunk, at, i) {
            for (i = 1; i <= olds[hunk]; i++)
                if (at + i - 1 > count || lines[at + i - 1] != old[hunk, i]) return 0
            return 1
        }
        function place(hunk, at) {
            if (!olds[hunk]) {
                if (said[hunk] < 0 && count)
                    fail("hunk " hunk " only adds lines and does not say where: give it a line that is there already")
                at = said[hunk] < 0 ? 1 : said[hunk] + 1
                if (at < next_line || at > count + 1) fail("hunk " hunk " adds lines where the file has none")
                return at
            }
            if (said[hunk] >= next_line && fits(hunk, said[hunk])) return said[hunk]
            for (at = next_line; at + olds[hunk] - 1 <= count; at++)
                if (fits(hunk, at)) return at
            fail("hunk " hunk " of " hunks ": the file has nowhere (after the hunk before) these " olds[hunk] \
                " lines, byte for byte; the first is: " old[hunk, 1])
        }
        BEGIN {
            while ((getline line < ENVIRON["_callboard_file"]) > 0) lines[++count] = line
            while ((getline line < ENVIRON["_callboard_patch"]) > 0) diff[++length_] = line
            for (i = 1; i <= length_; i++) {
                line = diff[i]
                sign = substr(line, 1, 1)
                if (line ~ /^@@/) {
                    hunks++
                    inside = 1
                    said[hunks] = match(line, /^@@ -[0-9]+/) ? substr(line, 5, RLENGTH - 4) + 0 : -1
                } else if (line ~ /^--- / && diff[i + 1] ~ /^\+\+\+ / && diff[i + 2] ~ /^@@/) {
                    inside = 0
                    i++
                } else if (line ~ /^(diff |index |```)/) {
                    inside = 0
                } else if (!inside) {
                    continue
                } else if (sign == "\\") {
                    if (last != "+") old_open[hunks] = 1
                    if (last != "-") new_open[hunks] = 1
                } else if (sign == "-" || sign == "+" || sign == " " || line == "") {
                    if (sign != "+") old[hunks, ++olds[hunks]] = substr(line, 2)
                    if (sign != "-") new[hunks, ++news[hunks]] = substr(line, 2)
                    last = sign
                    # Empty lines at the end of a hunk are rather the end of the text.
                    empty[hunks] = line == "" ? empty[hunks] + 1 : 0
                } else {
                    fail("line " i " of the diff begins with none of \" \", \"-\" and \"+\": " line)
                }
            }
            if (!hunks) fail("there is no hunk in the diff: each begins with a line that begins with @@")
            next_line = 1
            ends = ENVIRON["_callboard_ends"]
            for (hunk = 1; hunk <= hunks; hunk++) {
                olds[hunk] -= empty[hunk]
                news[hunk] -= empty[hunk]
                at = place(hunk)
                while (next_line < at) out[++outs] = lines[next_line++]
                for (i = 1; i <= news[hunk]; i++) out[++outs] = new[hunk, i]
                next_line += olds[hunk]
                if (next_line > count && (new_open[hunk] || old_open[hunk] || !count)) ends = !new_open[hunk]
            }
            while (next_line <= count) out[++outs] = lines[next_line++]
            for (i = 1; i <= outs; i++) printf "%s%s", out[i], i < outs || ends ? "\n" : ""
        }'
}
