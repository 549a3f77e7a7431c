"""Tutorials become pages: what a script says, prints and draws; one that fails fails the build."""

import pytest

from tools import gallery, ink

SCRIPT = """# %% [markdown]
# # A title
#
# One sentence. Another one.
# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(1, 1))
print(6 * 7)
# An empty pair of axes.
"""


def made(folder, text):
    script = folder / "01_small.py"
    script.write_text(text)
    return gallery.make(script)


def test_a_page_holds_text_code_output_and_picture(tmp_path):
    page = made(tmp_path, SCRIPT)
    assert page.markdown.startswith("# A title\n\nOne sentence.")
    assert "print(6 * 7)\n```\n\n```text\n42\n```" in page.markdown
    assert "![An empty pair of axes](01_small-1.svg)" in page.markdown
    assert page.pictures["01_small-1.svg"].lstrip().startswith("<?xml")


def test_a_card_shows_the_first_picture_and_the_first_sentence(tmp_path):
    card = gallery.card("01_small", made(tmp_path, SCRIPT))
    assert card == "- ![](01_small-1.svg)\n\n    **[A title](01_small.md)**\n\n    One sentence.\n"


def test_a_script_that_fails_is_broken(tmp_path):
    with pytest.raises(gallery.Broken, match=r"01_small\.py does not run:[^$]*ZeroDivisionError"):
        made(tmp_path, "# %%\n1 / 0\n")


def test_a_picture_without_a_description_is_refused(tmp_path):
    with pytest.raises(gallery.Broken, match="must end with a comment on its picture"):
        made(tmp_path, SCRIPT.replace("# An empty pair of axes.\n", ""))


def test_a_figure_is_shown_in_the_version_that_suits_the_page():
    assert "x.svg#only-light" in ink.both("![A](../figures/x.svg)")
    assert ink.both("![A](images/x.svg)") == "![A](images/x.svg)"
    assert ink.darkened(f'<text fill="{ink.INK}">') == f'<text fill="{ink.INK_ON_DARK}">'
