# callboard: completion for nushell; asked after the completer that was there before

$env.config = ($env.config? | default {})
$env.config.completions = ($env.config.completions? | default {})
$env.config.completions.external = ($env.config.completions.external? | default {})
let callboard_next = ($env.config.completions.external.completer? | default null)
$env.config.completions.external.enable = true
$env.config.completions.external.completer = {|spans: list<string>|
    if ($spans | first) == 'callboard' {
        let lines = (with-env { _CALLBOARD_COMPLETE: 'words_complete' } {
            ^callboard ...($spans | skip 1) | complete | get stdout | lines
        })
        let found = ($lines | split column "\t" kind value description)
        if ($found | any {|each| $each.kind != 'plain' }) {
            null
        } else {
            $found | select value description
        }
    } else if $callboard_next != null {
        do $callboard_next $spans
    } else {
        null
    }
}
