
# callboard: Alt-e puts the command that the words of the line stand for in their place

_callboard_alt_e() {
    [[ -n $BUFFER ]] || return 0
    local made
    zle -I
    made=$(CALLBOARD_SHELL=zsh callboard -e -- "$BUFFER" </dev/null) || return 0
    [[ -n $made ]] || return 0
    BUFFER=$made
    CURSOR=$#BUFFER
}

if [[ -o interactive ]]; then
    zle -N _callboard_alt_e
    bindkey -M emacs '\ee' _callboard_alt_e
    bindkey -M viins '\ee' _callboard_alt_e
fi
