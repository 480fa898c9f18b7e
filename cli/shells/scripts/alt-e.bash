
# callboard: Alt-e puts the command that the words of the line stand for in their place

_callboard_alt_e() {
    [[ -n $READLINE_LINE ]] || return
    local made
    made=$(CALLBOARD_SHELL=$BASH callboard -e -- "$READLINE_LINE" </dev/null) || return
    [[ -n $made ]] || return
    READLINE_LINE=$made
    READLINE_POINT=${#made}
}

if [[ $- == *i* ]]; then
    bind -m emacs-standard -x '"\ee": _callboard_alt_e'
    bind -m vi-insert -x '"\ee": _callboard_alt_e'
fi
