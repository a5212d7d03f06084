"""docs/configuration.md is what the program prints."""
import pathlib
import subprocess
import sys

from script_case import FOLDER, run_cases

SCRIPT, PROGRAM, PAGE = sys.argv[1:4]


def the_page_is_up_to_date():
    subprocess.run([SCRIPT, PROGRAM, FOLDER / "page.md"], check=True)
    made = (FOLDER / "page.md").read_text(encoding="utf-8").splitlines()
    kept = pathlib.Path(PAGE).read_text(encoding="utf-8").splitlines()
    differing = [pair for pair in zip(made, kept) if pair[0] != pair[1]]
    assert made == kept, f"run scripts/configuration-page; {differing[:1]}, {len(made)} {len(kept)}"


def each_key_has_a_row():
    text = pathlib.Path(PAGE).read_text(encoding="utf-8")
    for row in ("| `train.lr` | `1e-04` | highest learning rate", "## parallel\n",
                "| `data.tiles.thumbnail` | `true` | ", "(random \\| pretrained) |\n"):
        assert row in text, row
    assert text.count("\n| `") > 90, text.count("\n| `")


sys.exit(run_cases([the_page_is_up_to_date, each_key_has_a_row]))
