"""Program that runs Python code; the process of execute_py_code.

The code arrives on stdin, which is empty before the code runs. It runs as `__main__`, with the working directory first
on the path. If its last statement is an expression, its value is printed, as in an interactive session. The program
must run on any Python 3.8 or later, since the interpreter is the user's.
"""

import ast
import contextlib
import linecache
import os
import sys
import traceback
import types

NAME = "<code>"


def main() -> int:
    """Run the code from stdin and return the exit status: 1 after an exception, whose traceback is printed."""
    source = sys.stdin.buffer.read().decode()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(1, 2)
    # stdout and stderr share one pipe: line buffering preserves the order of the output.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    sys.path[0] = ""
    sys.argv = [NAME]
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    try:
        _run(source, module.__dict__)
    except SyntaxError as error:
        traceback.print_exception(SyntaxError, error, None if error.filename == NAME else error.__traceback__)
        return 1
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - shown as Python shows it, without our own frames
        below = error.__traceback__
        for _ in range(2):
            below = below.tb_next if below is not None else None
        traceback.print_exception(type(error), error, below)
        return 1
    return 0


def _run(source: str, names: "dict[str, object]") -> None:
    tree = ast.parse(source, NAME)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NAME, "exec"), names)  # noqa: S102 - what this program is for
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), NAME, "eval"), names)  # noqa: S307 - as above
        if value is not None:
            sys.stdout.write((value if isinstance(value, str) else repr(value)) + "\n")


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.exit(status)
