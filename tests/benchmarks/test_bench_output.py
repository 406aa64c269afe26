"""The table, the page and the picture, all from one report."""

import io
from pathlib import Path

from benchmarks.picture import margin, save_picture
from benchmarks.table import page, print_rows
from rich.console import Console
from tests.benchmarks.bench_rows import sample_report, sample_rows


def test_the_table_shows_figures_and_verdicts() -> None:
    out = io.StringIO()
    print_rows(Console(file=out, width=160), sample_report())
    text = out.getvalue()
    for expected in ("3.33 x", "0.90 x", "120 MiB", "missed", "s2 is missing", "Kafka 3.00 (2.00 to 4.00) MB/s"):
        assert expected in text


def test_the_page_names_machine_conditions_clients_and_spread() -> None:
    text = page(sample_report())
    for expected in (
        "Machine: 2 cores",
        "at commit abc1234; 3 rounds; a processor; ext4 on vda",
        "Goals: 2 of 4 met",
        "the client of Kafka",
        "9.00 to 11.0",
    ):
        assert expected in text


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    save_picture(sample_report(), tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_a_bar_right_of_the_line_is_a_goal_met() -> None:
    fast, large, memory, _ = sample_rows()
    assert margin(fast) > 1
    assert margin(large) < 1
    assert margin(memory) > 1
