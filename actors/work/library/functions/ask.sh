# How bash asks a person through Callboard. Read by `prompt-utils.sh`, and part of the runner of bash tools.
#
# A question goes over the socket whose number is in CALLBOARD_ASK_FD, as `name=value` words that end with a NUL each,
# after their number; the answer comes back the same way. See actors/work/tools/files/runner_protocol.py for the words.

# _callboard_ask FIELD...: asks, and puts the answer into the array `_callboard_answer`.
# Returns 1 when nobody answers, after saying why on stderr.
_callboard_ask() {
    local _callboard_status='' _callboard_count='' _callboard_value
    _callboard_answer=()
    # Programs like Python close what they inherited before they start others; the number may mean another file then.
    if [[ -S /dev/fd/$CALLBOARD_ASK_FD ]] && builtin printf '%s\0' "$#" "$@" >&"$CALLBOARD_ASK_FD"; then
        IFS= builtin read -r -d '' -u "$CALLBOARD_ASK_FD" _callboard_status || _callboard_status=''
    fi
    if [[ -z $_callboard_status ]]; then
        builtin printf 'the question could not be asked: the connection to Callboard is closed\n' >&2
        return 1
    fi
    IFS= builtin read -r -d '' -u "$CALLBOARD_ASK_FD" _callboard_count || return 1
    while ((_callboard_count-- > 0)); do
        IFS= builtin read -r -d '' -u "$CALLBOARD_ASK_FD" _callboard_value || return 1
        _callboard_answer+=("$_callboard_value")
    done
    [[ $_callboard_status == ok ]] && return 0
    builtin printf '%s\n' "${_callboard_answer[@]}" >&2
    return 1
}
