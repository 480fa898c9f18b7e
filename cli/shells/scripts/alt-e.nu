
# callboard: Alt-e puts the command that the words of the line stand for in their place

def --env callboard-alt-e [] {
    let typed = (commandline)
    if ($typed | str trim | is-empty) { return }
    let made = (with-env { CALLBOARD_SHELL: nu } { ^callboard -e -- $typed | complete })
    if $made.exit_code == 0 {
        commandline edit --replace ($made.stdout | str trim --right)
    } else {
        print --stderr $made.stderr
    }
}

$env.config.keybindings = ($env.config.keybindings? | default [] | append {
    name: callboard_alt_e
    modifier: alt
    keycode: char_e
    mode: [emacs vi_insert]
    event: { send: executehostcommand, cmd: 'callboard-alt-e' }
})
