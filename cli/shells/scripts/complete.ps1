# callboard: completion for PowerShell

$CallboardComplete = {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursorPosition } | ForEach-Object { $_.Extent.Text })
    if ($words[0] -eq 'loki') { $words = @('callboard') + $words }
    if ($wordToComplete -eq '') { $words += '' }
    $rest = @($words | Select-Object -Skip 1)
    $env:_CALLBOARD_COMPLETE = 'words_complete'
    try {
        & callboard @rest 2>$null | ForEach-Object {
            $kind, $value, $about = $_ -split "`t", 3
            if ($kind -eq 'plain') {
                if (-not $about) { $about = $value }
                $text = if ($value -match '[^\w./:=,@%+-]') { "'" + $value.Replace("'", "''") + "'" } else { $value }
                [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $about)
            }
        }
    } finally {
        Remove-Item Env:_CALLBOARD_COMPLETE -ErrorAction SilentlyContinue
    }
}
Register-ArgumentCompleter -Native -CommandName callboard -ScriptBlock $CallboardComplete
