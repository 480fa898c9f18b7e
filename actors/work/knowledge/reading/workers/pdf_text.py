"""PDF worker: reads a PDF from stdin, and writes a line of JSON with title and page count, then its text, to stdout.

    python -I pdf_text.py SECONDS MEGABYTES

Exit status: 0 success; 3 pypdf is not installed; 4 the PDF can't be read, and stdout says why.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import resource
import sys


def main() -> int:
    """Read one PDF. Return the exit status."""
    seconds, megabytes = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    try:
        from pypdf import PdfReader
    except ImportError:
        return 3
    logging.disable(logging.CRITICAL)  # pypdf logs every malformed object
    try:
        reader = PdfReader(io.BytesIO(sys.stdin.buffer.read()))
        if reader.is_encrypted and not reader.decrypt(""):
            sys.stdout.write("the file is encrypted")
            return 4
        title = ""
        with contextlib.suppress(Exception):  # metadata is often broken in files whose pages are not
            title = str((reader.metadata and reader.metadata.title) or "")
        pages = [page.extract_text() for page in reader.pages]
    except RecursionError:
        sys.stdout.write("the file is nested too deeply")
        return 4
    except MemoryError:
        sys.stdout.write("reading the file needs more memory than is allowed")
        return 4
    except Exception as error:  # noqa: BLE001 - an untrusted file may raise anything in pypdf
        sys.stdout.write(f"{type(error).__name__}: {error}"[:500])
        return 4
    text = "\n\n".join(page.strip("\n") for page in pages)
    head = json.dumps({"title": title, "pages": len(pages), "empty": not text.strip()})
    sys.stdout.buffer.write(f"{head}\n{text}".encode("utf-8", "replace"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
