
# callboard: Alt-e puts the command that the words of the line stand for in their place

if (Get-Command Set-PSReadLineKeyHandler -ErrorAction SilentlyContinue) {
    Set-PSReadLineKeyHandler -Chord 'Alt+e' -BriefDescription 'callboard' -ScriptBlock {
        $typed = $null
        $cursor = $null
        [Microsoft.PowerShell.PSConsoleReadLine]::GetBufferState([ref]$typed, [ref]$cursor)
        if ($typed) {
            $before = $env:CALLBOARD_SHELL
            $env:CALLBOARD_SHELL = 'powershell'
            try { $made = callboard -e -- $typed 2>$null | Out-String } finally { $env:CALLBOARD_SHELL = $before }
            if ($LASTEXITCODE -eq 0 -and $made.Trim()) {
                [Microsoft.PowerShell.PSConsoleReadLine]::Replace(0, $typed.Length, $made.TrimEnd())
            }
        }
    }
}
