
# callboard: Alt-e puts the command that the words of the line stand for in their place

function __callboard_alt_e
    set -l typed (commandline --current-buffer | string collect)
    test -n "$typed"; or return
    echo
    set -l made (CALLBOARD_SHELL=fish callboard -e -- "$typed" </dev/null | string collect)
    if test -n "$made"
        commandline --replace -- $made
        commandline --function end-of-buffer
    end
    commandline --function repaint
end

if status is-interactive
    bind \ee __callboard_alt_e
    bind --mode insert \ee __callboard_alt_e
end
