# callboard: completion for zsh

_callboard() {
    local -a values shown folders
    local kind value about program=callboard files=
    [[ $words[1] == */callboard ]] && program=${(Q)words[1]}
    while IFS=$'\t' read -r kind value about; do
        case $kind in
            file) files=1 ;;
            dir) files=1 ;;
            plain)
                if [[ $value == */ ]]; then
                    folders+=("$value")
                else
                    values+=("$value")
                    shown+=("$value${about:+  -- $about}")
                fi
                ;;
        esac
    done < <(_CALLBOARD_COMPLETE=words_complete $program "${(@)words[2,CURRENT]}" 2>/dev/null)
    # what stands behind --flag= is completed by itself
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    (( $#values )) && compadd -l -d shown -- "${values[@]}"
    (( $#folders )) && compadd -S '' -- "${folders[@]}"
    [[ -n $files ]] && _files
    return 0
}

if ! (( $+functions[compdef] )); then
    autoload -Uz compinit && compinit
fi
compdef _callboard callboard
