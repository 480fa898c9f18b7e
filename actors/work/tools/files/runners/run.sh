# Runs one function of a bash tool file: bash -c "<ask.sh> <this>" /path/to/tools.sh
#
# `$0` is the user's file. It is sourced, so its own code at the top level runs first, as it would with argc. Then its
# variables `argc_<name>` are set, and the function is called with the positional arguments as "$@". Nothing that came
# from the model is ever evaluated. The words that are read here are described in actors/work/tools/files/runner_protocol.py.

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    printf 'bash tools need bash 4.4 or later; this is %s\n' "$BASH_VERSION" >&2
    exit 2
fi
if [[ -n ${CALLBOARD_TTY_FD-} && -z ${CALLBOARD_TTY_LED-} ]]; then
    # Only who leads a session can get a terminal. In the sandbox that is bwrap, so this begins a session of its own.
    _callboard_stat=$(</proc/$$/stat)
    read -r _ _ _ _callboard_session _ <<<"${_callboard_stat##*) }"
    if [[ $_callboard_session != "$$" ]] && type -P setsid >/dev/null; then
        export CALLBOARD_TTY_LED=1
        exec setsid "$BASH" -c "$BASH_EXECUTION_STRING" "$0"
    fi
    unset _callboard_stat _callboard_session
fi
unset CALLBOARD_TTY_LED
mapfile -t -d '' _callboard_call <&"$CALLBOARD_CALL_FD"
exec {CALLBOARD_CALL_FD}<&-
unset CALLBOARD_CALL_FD
while [[ ${_callboard_call[0]} == raw ]]; do
    printf -v "${_callboard_call[1]}" '%s' "${_callboard_call[2]}"
    _callboard_call=("${_callboard_call[@]:3}")
done
IFS= read -r -d '' -u "$CALLBOARD_ASK_FD" _ || exit 2
if [[ -n ${CALLBOARD_TTY_FD-} ]]; then
    # Who leads a session and has no terminal yet gets the first one it opens: now there is a /dev/tty.
    exec {_callboard_tty}<>"/proc/self/fd/$CALLBOARD_TTY_FD"
    exec {_callboard_tty}>&- {CALLBOARD_TTY_FD}>&-
    unset _callboard_tty CALLBOARD_TTY_FD
fi

# A read from the tool's own stdin, which is empty, asks a person. One from a pipe or a file is what it always was.
read() {
    if [[ ! /dev/fd/0 -ef /dev/null && ! /dev/fd/0 -ef /dev/tty ]]; then
        builtin read "$@"
        return
    fi
    local -a _callboard_args=("$@") _callboard_fields=(kind=text) _callboard_answer
    local _callboard_end=$'\n' _callboard_letter OPTIND=1 OPTARG='' OPTERR=0
    while getopts ':ersa:d:i:n:N:p:t:u:' _callboard_letter; do
        case $_callboard_letter in
            p) _callboard_fields+=("text=$OPTARG") ;;
            i) _callboard_fields+=("default=$OPTARG") ;;
            t) _callboard_fields+=("timeout=$OPTARG") ;;
            s) _callboard_fields+=(secret=1) ;;
            d) _callboard_end=${OPTARG:0:1} ;;
            u)
                if [[ $OPTARG != 0 ]]; then
                    builtin read "${_callboard_args[@]}"
                    return
                fi
                ;;
        esac
    done
    _callboard_ask "${_callboard_fields[@]}" || return 1
    if [[ -z $_callboard_end ]]; then
        builtin read "${_callboard_args[@]}" < <(builtin printf '%s\0' "${_callboard_answer[0]}")
    else
        builtin read "${_callboard_args[@]}" < <(builtin printf '%s%s' "${_callboard_answer[0]}" "$_callboard_end")
    fi
}

_callboard_fail() {
    builtin printf '%s\n' "$1" >&2
    builtin exit 2
}

# _callboard_lines FUNCTION: what this function of the file prints, as lines in the array `_callboard_said`.
_callboard_lines() {
    builtin declare -F "$1" >/dev/null || _callboard_fail "$0 has no function '$1', which its comments name"
    local _callboard_text
    _callboard_text=$("$1") || _callboard_fail "the function '$1' of $0 failed"
    builtin mapfile -t _callboard_said <<<"$_callboard_text"
}

# _callboard_check LABEL FUNCTION COUNT CHOICE... VALUE...: with COUNT choices or those that FUNCTION prints, every
# value must be one of them.
_callboard_check() {
    local _callboard_label=$1 _callboard_word _callboard_choice
    local -a _callboard_choices=() _callboard_said=()
    if [[ -n $2 ]]; then
        _callboard_lines "$2"
        _callboard_choices=("${_callboard_said[@]}")
    fi
    builtin shift 2
    local _callboard_count=$1
    builtin shift
    _callboard_choices+=("${@:1:_callboard_count}")
    builtin shift "$_callboard_count"
    ((${#_callboard_choices[@]})) || return 0
    for _callboard_word in "$@"; do
        for _callboard_choice in "${_callboard_choices[@]}"; do
            [[ $_callboard_word == "$_callboard_choice" ]] && continue 2
        done
        local IFS=,
        _callboard_fail "'$_callboard_word' is not allowed for $_callboard_label; allowed: ${_callboard_choices[*]}"
    done
}

# _callboard_env NAME REQUIRED HAS_DEFAULT DEFAULT DEFAULT_FUNCTION CHOICES_FUNCTION CHOICE...
_callboard_env() {
    local _callboard_name=$1
    local -a _callboard_said=()
    if [[ -z ${!_callboard_name-} ]]; then
        if [[ -n $5 ]]; then
            _callboard_lines "$5"
            builtin printf -v "$1" '%s' "${_callboard_said[0]}"
        elif [[ $3 == 1 ]]; then
            builtin printf -v "$1" '%s' "$4"
        elif [[ $2 == 1 ]]; then
            _callboard_fail "the environment variable '$1' is required and not set"
        else
            return 0
        fi
        builtin export "$_callboard_name"
    fi
    _callboard_check "the environment variable '$1'" "$6" $(($# - 6)) "${@:7}" "${!_callboard_name}"
}

# _callboard_arg NAME LABEL ONE_OR_MANY POSITIONAL GIVEN DEFAULT_FUNCTION CHOICES_FUNCTION VALUE...
_callboard_arg() {
    local _callboard_name=argc_$1
    local -a _callboard_values=("${@:8}") _callboard_said=()
    if [[ $5 == 0 ]]; then
        if [[ -z $6 ]]; then
            [[ $4 == 0 ]] || _callboard_skipped+=('')
            return 0
        fi
        _callboard_lines "$6"
        _callboard_values=("${_callboard_said[@]}")
        [[ $3 == many ]] || _callboard_values=("${_callboard_said[0]}")
    fi
    [[ -z $7 ]] || _callboard_check "'$2'" "$7" 0 "${_callboard_values[@]}"
    if [[ $3 == many ]]; then
        local -n _callboard_array=$_callboard_name
        _callboard_array=("${_callboard_values[@]}")
    else
        builtin printf -v "$_callboard_name" '%s' "${_callboard_values[0]-}"
    fi
    if [[ $4 == 1 ]]; then
        # One that was left out keeps its place if another one follows.
        argc__positionals+=("${_callboard_skipped[@]}" "${_callboard_values[@]}")
        _callboard_skipped=()
    fi
}

# Reads the records and does what they say.
_callboard_prepare() {
    local -i _callboard_at=2 _callboard_n
    local -a _callboard_skipped=()
    while ((_callboard_at < ${#_callboard_call[@]})); do
        case ${_callboard_call[_callboard_at]} in
            need)
                builtin command -v -- "${_callboard_call[_callboard_at + 1]}" >/dev/null ||
                    _callboard_fail "this tool needs the program '${_callboard_call[_callboard_at + 1]}', which is not on the PATH"
                _callboard_at+=2
                ;;
            env)
                _callboard_n=${_callboard_call[_callboard_at + 7]}
                _callboard_env "${_callboard_call[@]:_callboard_at + 1:6}" \
                    "${_callboard_call[@]:_callboard_at + 8:_callboard_n}"
                _callboard_at+=$((8 + _callboard_n))
                ;;
            arg)
                _callboard_n=${_callboard_call[_callboard_at + 8]}
                _callboard_arg "${_callboard_call[@]:_callboard_at + 1:7}" \
                    "${_callboard_call[@]:_callboard_at + 9:_callboard_n}"
                _callboard_at+=$((9 + _callboard_n))
                ;;
            *) _callboard_fail "Callboard's own words to the bash runner were not understood" ;;
        esac
    done
}

# A checkout of Windows ends lines with CR and LF: bash would take the CR for a part of the last word of each.
_callboard_crlf=
IFS= builtin read -r _callboard_crlf < "$0" || true
[[ $_callboard_crlf == *$'\r' ]] || _callboard_crlf=

if [[ ${_callboard_call[0]} == line ]]; then
    set -- "${_callboard_call[@]:1}"
    unset _callboard_call
    if [[ -n $_callboard_crlf ]]; then
        source <(tr -d '\r' < "$0") "$@"
    else
        source "$0" "$@"
    fi
    exit
fi

# A file may end with `eval "$(argc --argc-eval "$0" "$@")"`: what argc would do is done below.
argc() { :; }

if [[ -n $_callboard_crlf ]]; then
    source <(tr -d '\r' < "$0")
else
    source "$0"
fi

argc__fn=${_callboard_call[1]}
argc__positionals=()
_callboard_prepare
builtin unset _callboard_call
builtin declare -F "$argc__fn" >/dev/null || _callboard_fail "$0 has no function '$argc__fn'"
if builtin declare -F _argc_before >/dev/null; then _argc_before; fi
"$argc__fn" "${argc__positionals[@]}"
_callboard_status=$?
if builtin declare -F _argc_after >/dev/null; then _argc_after; fi
builtin exit "$_callboard_status"
