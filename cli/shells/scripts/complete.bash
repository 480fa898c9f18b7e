# callboard: completion for bash, 3.2 and newer

_callboard() {
    local -a words=()
    local rest=$COMP_LINE trimmed word kind value about prefix cur i
    # bash has split the line at : and =, which stand in names of models and in flags
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        trimmed=${rest#"${rest%%[![:space:]]*}"}
        if [[ ${#words[@]} -eq 0 || $trimmed != "$rest" ]]; then
            words[${#words[@]}]=$word
        else
            words[${#words[@]} - 1]+=$word
        fi
        rest=${trimmed#"$word"}
    done
    local program=callboard
    case ${words[0]} in
        */callboard) program=${words[0]} ;;
        loki) words=(callboard loki "${words[@]:1}") ;;
    esac
    cur=${words[${#words[@]} - 1]}
    [[ $cur == --*=* ]] && cur=${cur#*=}
    prefix=
    [[ $COMP_WORDBREAKS == *:* && $cur == *[:=]* ]] && prefix=${cur%"${cur##*[:=]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r kind value about; do
        case $kind in
            file) compopt -o default 2>/dev/null ;;
            dir) compopt -o dirnames 2>/dev/null ;;
            plain)
                value=${value#"$prefix"}
                [[ $value == *[!A-Za-z0-9_./:=,@%+-]* && $cur != [\"\']* ]] && printf -v value %q "$value"
                [[ $value == */ ]] && compopt -o nospace 2>/dev/null
                COMPREPLY[${#COMPREPLY[@]}]=$value
                ;;
        esac
    done < <(_CALLBOARD_COMPLETE=words_complete "$program" "${words[@]:1}" 2>/dev/null)
}

complete -o nosort -F _callboard callboard 2>/dev/null || complete -F _callboard callboard
