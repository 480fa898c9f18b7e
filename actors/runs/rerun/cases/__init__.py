"""Test cases of agents (`protocol/cases`): files of inputs and expectations, for `callboard test`.

    CaseFile         a file of cases; `find_cases` searches for them (`case_files`)
    run_cases        runs cases concurrently, from cassettes or live (`run_cases`, which also asks judges)
    CaseResult       the outcome of a case and its unmet expectations
    unmet            compares a run with the expectations of its case; pure (`expectations`)
    junit, as_wire   results for other programs (`report`)

May import runs/ and the layers below. Start with `run_cases`.
"""
