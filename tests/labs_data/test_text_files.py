"""A person's folder of text: what is read, in which order, and what is said where nothing can be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from labs import text_files
from labs.text_files import DataError, corpus


def test_subfolders_in_order_without_hidden_and_foreign_files(tmp_path: Path) -> None:
    """Files of a folder before those of its subfolders, each by name; links that lead nowhere are passed."""
    for name, content in {
        "b.txt": "B",
        "a.MD": "A",
        "deep/er/c.py": "C",
        "deep/d.rst": "D",
        ".git/e.txt": "never",
        "f.bin": "never",
        "empty.txt": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    assert corpus(str(tmp_path)) == b"ABDC"
    assert corpus(str(tmp_path), limit=3) == b"ABD"


def test_the_standard_library_is_at_hand() -> None:
    """The same bytes each time, as many as asked for."""
    text = corpus(limit=5000)
    assert len(text) == 5000
    assert text == corpus(limit=5000)


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    """It names what was given, and says what to do."""
    with pytest.raises(DataError, match=r"'.*none' does not exist; give a folder"):
        corpus(str(tmp_path / "none"))
    file = tmp_path / "file.txt"
    file.write_text("x")
    with pytest.raises(DataError, match=r"file\.txt' is not a folder"):
        corpus(str(file))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty' holds no text; place files there that end in \.py, \.txt"):
        corpus(str(tmp_path / "empty"))


def test_a_file_and_a_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where root runs the tests, whom no permission stops."""
    (tmp_path / "secret.txt").write_text("x")

    def refuse(_path: object, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(DataError, match=r"secret\.txt' cannot be read: Permission denied; make it"):
            corpus(str(tmp_path))
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(DataError, match="cannot be read: Permission denied"):
        corpus(str(tmp_path))


def test_a_huge_tree_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form asks again after each key: looking stops after so many files."""
    monkeypatch.setattr(text_files, "MOST_FILES", 3)
    for name in ("a.bin", "b.bin", "c.bin", "d.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match="holds no text"):
        corpus(str(tmp_path))
