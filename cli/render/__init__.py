"""Terminal output: progress and questions on stderr, results on stdout.

`text` escapes control characters of foreign text and decides about colours. `narration` turns events into lines.
`progress` and `tree` are the displays on stderr, `dialog` asks questions at the terminal, and `result` owns stdout.

The package imports mostly `protocol`, `actors.views` and `actors.io`. Names to know: `safe` in `text`, which every
foreign text passes; `Narrator`, events to lines; `ProgressDisplay`; `Dialog`, one question at a terminal; and
`ResultFormat`. Start with `narration` and `result`.
"""
