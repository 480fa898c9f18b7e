"""One call of each of ChatDev's function tools, with the calls that have to come before it.

What is told to the model is compared with `told`: texts that stand in it once the workspace's path is written as
`<workspace>`. They were taken from what ChatDev's own engine said to the same calls on 2026-11-23.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Call = tuple[str, dict[str, Any]]

NOTES = "alpha\nbeta\ngamma\n"
"""`notes.txt` in the workspace; `sub/deep.txt` holds "deep beta", `scene.py` a class."""

ANSWER = "tea"
"""Of the person."""

SAVED: list[Call] = [
    ("search_save_result", {"url": "http://a.test", "title": "A", "abs": "short", "detail": "long"}),
]
REPORT: list[Call] = [
    ("report_create_chapter", {"title": "One", "level": 1, "content": "first"}),
    ("report_create_chapter", {"title": "Two", "level": 1, "content": "second"}),
]


class Told(NamedTuple):
    """A call, and what comes of it.

    Attributes:
        arguments: of the call.
        told: texts in what the model is told; none where only the time of day is.
        before: calls that come first.
        needs: what the machine or the network must have; the call is made, and may say that it is missing.
        missing: how it says so.
    """

    arguments: dict[str, Any]
    told: tuple[str, ...] = ()
    before: tuple[Call, ...] = ()
    needs: str = ""
    missing: tuple[str, ...] = ()


NETWORK = ("ConnectionError", "NameResolution", "Max retries", "No module named 'requests'", "timed out", "ProxyError")

CALLS: dict[str, dict[str, Told]] = {
    "code_executor": {"execute_code": Told({"code": "print(6 * 7)"}, ("42",))},
    "deep_research": {
        "search_save_result": Told(SAVED[0][1], ("Saved result for http://a.test",)),
        "search_load_all": Told({}, ("URL: http://a.test", "Title: A", "Abstract: short"), tuple(SAVED)),
        "search_load_by_url": Told({"url": "http://a.test"}, ("Detail: long",), tuple(SAVED)),
        "search_high_light_key": Told(
            {"url": "http://a.test", "keys": ["x"]}, ("Updated highlights for http://a.test: ['x']",), tuple(SAVED)
        ),
        "report_read": Told({}, ("# One\nfirst\n# Two\nsecond",), tuple(REPORT)),
        "report_read_chapter": Told({"title": "Two"}, ("second",), tuple(REPORT)),
        "report_outline": Told({}, ("# One\n# Two",), tuple(REPORT)),
        "report_create_chapter": Told(REPORT[0][1], ("Created chapter 'One' at level 1",)),
        "report_rewrite_chapter": Told({"title": "One", "content": "new"}, ("Rewrote chapter 'One'",), tuple(REPORT)),
        "report_continue_chapter": Told(
            {"title": "One", "content": "more"}, ("Appended content to chapter 'One'",), tuple(REPORT)
        ),
        "report_reorder_chapters": Told(
            {"new_order": ["Two", "One"]}, ("Reordered chapters successfully.",), tuple(REPORT)
        ),
        "report_del_chapter": Told({"title": "One"}, ("Deleted chapter 'One'",), tuple(REPORT)),
        "report_export_pdf": Told(
            {}, ("report.pdf",), tuple(REPORT), "the packages markdown and xhtml2pdf", ("xhtml2pdf' are missing",)
        ),
    },
    "file": {
        "describe_available_files": Told({}, ('"name": "notes.txt"', '"path": "sub/deep.txt"', '"type": "directory"')),
        "list_directory": Told({"path": "sub"}, ('"relative_path": "deep.txt"', '"truncated": false')),
        "create_folder": Told(
            {"path": "new"}, ('"path": "new"', '"absolute_path": "<workspace>/new"', '"created": true')
        ),
        "delete_path": Told({"path": "notes.txt"}, ('"deleted": true', '"type": "file"')),
        "load_file": Told({"path_or_id": "notes.txt"}, (NOTES.strip(),)),
        "save_file": Told(
            {"path": "out/a.txt", "content": "héllo"},
            ('"path": "out/a.txt"', '"absolute_path": "<workspace>/out/a.txt"', '"size": 6'),
        ),
        "read_text_file_snippet": Told({"path": "notes.txt", "limit": 5}, ('"snippet": "alpha"', '"truncated": true')),
        "read_file_segment": Told(
            {"path": "notes.txt", "start_line": 2, "line_count": 1}, ('"snippet": "beta\\n"', '"end_line": 2')
        ),
        "apply_text_edits": Told(
            {"path": "notes.txt", "start_line": 2, "end_line": 2, "replacement": "BETA"}, ('"path": "notes.txt"',)
        ),
        "rename_path": Told({"src": "notes.txt", "dst": "n.txt"}, ('"path": "n.txt"',)),
        "copy_path": Told({"src": "sub", "dst": "twin"}, ('"operation": "copy"', '"source": "sub"')),
        "move_path": Told({"src": "sub", "dst": "there"}, ('"operation": "move"',)),
        "search_in_files": Told(
            {"pattern": "BETA", "globs": ["**/*.txt"]}, ('"line_text": "beta"', '"file": "sub/deep.txt"')
        ),
    },
    "user": {"call_user": Told({"instruction": "Tea or coffee?"}, (ANSWER,))},
    "utils": {"wait": Told({"seconds": 0.01}), "get_current_time": Told({}, ("20", ":"))},
    "uv_related": {
        "init_python_env": Told({}, ('"steps"',), (), "the program uv", ("uv command not found",)),
        "install_python_packages": Told(
            {"packages": ["six"]}, ('"command"',), (), "the program uv", ("uv command not found",)
        ),
        "uv_run": Told({"module": "this"}, ('"command"',), (), "the program uv", ("uv command not found",)),
    },
    "video": {
        "render_manim": Told(
            {"script_path": "<workspace>/scene.py"}, (), (), "the package manim", ("No module named manim",)
        ),
        "concat_videos": Told({"video_paths": ["a.mp4"]}, (), (), "the program ffmpeg", ("'ffmpeg'",)),
    },
    "weather": {
        "get_city_num": Told({"city": "Oslo"}, ('"city_num": 3701',)),
        "get_weather": Told({"city_num": 1, "unit": "fahrenheit"}, ('"temperature": 59.0', '"unit": "fahrenheit"')),
    },
    "web": {
        "web_search": Told(
            {"query": "x"}, (), (), "the network and a key of serper.dev", (*NETWORK, "API key", "Unauthorized")
        ),
        "read_webpage_content": Told({"url": "http://a.test"}, (), (), "the network", NETWORK),
    },
}
"""By file, by function."""
