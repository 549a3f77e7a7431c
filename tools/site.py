"""What the documentation is built with besides its pages: the article as a page of its own."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from bayesdiv.app.explore.page import page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the article, which is made and not kept, so that links to it can be checked."""
    files.append(File.generated(config, "why-bounded.html", content=page()))
    return files
