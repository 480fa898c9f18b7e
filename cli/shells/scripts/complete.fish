# callboard: completion for fish

function __callboard_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token --cut-at-cursor)
    set -q current[1]; or set current ''
    for line in (_CALLBOARD_COMPLETE=words_complete callboard $argv $words[2..] $current 2>/dev/null)
        set -l parts (string split --max 2 \t -- $line)
        switch $parts[1]
            case plain
                set -l value $parts[2]
                # fish wants the whole word, click gives what stands behind --flag=
                if string match -qr -- '^--[a-z-]+=' $current
                    set value (string replace -r -- '=.*' '=' $current)$value
                end
                printf '%s\t%s\n' $value $parts[3]
            case file
                __fish_complete_path $current
            case dir
                __fish_complete_directories $current ''
        end
    end
end

complete --command callboard --no-files --arguments '(__callboard_complete)'
