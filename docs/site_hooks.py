"""What the site adds to MkDocs: a page for every public name, and formulas as MathML, which needs no script."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor
from mkdocs.structure.files import File

import dualcore

ENTRY = re.compile(r"^::: dualcore\.([\w.]+)$")
# A block of a docstring goes on as long as its lines are indented; a fenced block is what GitHub renders, too.
DIRECTIVE = re.compile(r"^( *)\.\. math::[ \t]*(.*(?:\n\1[ \t]+\S.*)*)", re.MULTILINE)
FENCED = re.compile(r"^```math\n(.*?)\n```$", re.MULTILINE | re.DOTALL)
INLINE = r"\$(?!\s)([^$\n]+?)(?<!\s)\$"
# Operators whose index stands below them in a displayed formula.
LIMITS = {"min", "max", "sup", "inf", "\u2211"}
BELOW = {"msub": "munder", "msubsup": "munderover"}
MATHML = "http://www.w3.org/1998/Math/MathML"


def on_config(config: Any) -> Any:
    """Render formulas, and list every public name under the entry of the API."""
    config.markdown_extensions.append(Formulas())
    for number, entry in enumerate(config.nav):
        if entry == {"API": "api.md"}:
            config.nav[number] = {"API": ["api.md", *_sections(Path(config.docs_dir))]}
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the page of each public name."""
    for _, names in _groups(Path(config.docs_dir)):
        for name in names:
            # An object is documented by the lines of its docstring; only its title is that of the page.
            text = f"---\ntitle: {name.rpartition('.')[2]}\n---\n\n::: dualcore.{name}\n"
            files.append(File.generated(config, f"api/{_page(name)}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn the entries of the API page into links with a summary."""
    if page.file.src_uri != "api.md":
        return markdown
    return "\n".join(ENTRY.sub(_link, line) for line in markdown.splitlines())


def _groups(folder: Path) -> list[tuple[str, list[str]]]:
    """Return the sections of the API page, each with the names it lists."""
    groups: list[tuple[str, list[str]]] = []
    for line in (folder / "api.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            groups.append((line[3:], []))
        elif found := ENTRY.match(line):
            groups[-1][1].append(found[1])
    return groups


def _sections(folder: Path) -> list[dict[str, Any]]:
    return [
        {title: [{name.rpartition(".")[2]: f"api/{_page(name)}"} for name in names]} for title, names in _groups(folder)
    ]


def _page(name: str) -> str:
    return f"{name.rpartition('.')[2]}.md"


def _link(found: re.Match[str]) -> str:
    thing: Any = dualcore
    for part in found[1].split("."):
        thing = getattr(thing, part)
    text = inspect.getdoc(thing) or ""
    summary = " ".join(text.split("\n\n")[0].split())
    return f"* [`{found[1].rpartition('.')[2]}`](api/{_page(found[1])}): {summary}"


class Formulas(Extension):
    """Markdown in which ``.. math::`` blocks, fenced ``math`` blocks and what is between dollars are formulas."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the name Markdown gives it)
        """Render before fenced blocks are looked for (25), after control characters are removed (30).

        Within a line after code (190), in which a dollar is a dollar, and before a backslash escapes anything (180).
        """
        md.preprocessors.register(_Blocks(md), "formulas", 28)
        md.inlinePatterns.register(_Inline(INLINE, md), "formulas", 185)


class _Blocks(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        text = DIRECTIVE.sub(lambda found: self._stash(found[2]), "\n".join(lines))
        return FENCED.sub(lambda found: self._stash(found[1]), text).split("\n")

    def _stash(self, formula: str) -> str:
        return f"\n{self.md.htmlStash.store(to_mathml(formula))}\n"


class _Inline(InlineProcessor):
    def handleMatch(self, found: re.Match[str], text: str) -> tuple[str, int, int]:  # noqa: N802
        return self.md.htmlStash.store(to_mathml(found[1], inline=True)), found.start(), found.end()


def to_mathml(formula: str, *, inline: bool = False) -> str:
    r"""Return a formula of LaTeX as MathML: displayed in a box that scrolls, or within a line.

    >>> "munder" in to_mathml(r"\min_x x^2")
    True
    >>> "formula" in to_mathml("x_i", inline=True)
    False
    """
    ElementTree.register_namespace("", MATHML)
    latex = " ".join(textwrap.dedent(formula).split()).replace(r"\|", "\u2016")  # after \Bigl a command is no delimiter
    markup = convert(latex, display="inline" if inline else "block")
    # The bars of a norm would grow as tall as a fraction beside them.
    markup = markup.replace("<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>')
    if "\\" in markup:
        raise ValueError(f"latex2mathml left a command as it was in {latex!r}: write the formula with another one.")
    if inline:
        return str(markup)
    root = ElementTree.fromstring(markup)
    for node in root.iter():
        kind = node.tag.rpartition("}")[2]
        if kind in BELOW and len(node) and (node[0].text or "") in LIMITS:
            node.tag = f"{{{MATHML}}}{BELOW[kind]}"
    return f'<div class="formula">{ElementTree.tostring(root, encoding="unicode")}</div>'
