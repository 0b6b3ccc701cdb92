"""Small pieces of HTML. Every string that comes from data goes through :func:`text`, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["figure", "list_of_facts", "number", "percent", "scrolled", "section", "table", "text"]


def text(value: Any) -> str:
    """A value as text, safe in content and in quoted attributes.

    Control characters, which have no place in HTML, become U+FFFD: a report is to show that something is there.
    """
    written = escape(str(value), quote=True)
    return "".join(c if c in "\t\n" or (c >= " " and not "\x7f" <= c <= "\x9f") else "\ufffd" for c in written)


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 1 in percent, without the sign; a dash for None."""
    return "–" if value is None or value != value else f"{100 * value:.{digits}f}"


def number(value: Any) -> str:
    """A number for people; other values as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def section(name: str, title: str, *content: str, lead: str = "") -> str:
    """A section with a heading; ``lead`` is escaped, ``content`` is HTML."""
    opening = f'<p class="lead">{text(lead)}</p>' if lead else ""
    return f'<section id="{name}"><h2>{text(title)}</h2>{opening}{"".join(content)}</section>'


def figure(drawing: str, title: str, caption: str) -> str:
    """A drawing with its title above and what it says below; ``drawing`` is HTML."""
    return (
        f'<figure class="card"><h3>{text(title)}</h3><div class="plot">{drawing}</div>'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def list_of_facts(facts: Iterable[tuple[str, Any]]) -> str:
    """Names and values as a definition list."""
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{number(value)}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of finished cells (HTML); all columns but the first are set to the right."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + f'<th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return scrolled(f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>")


def scrolled(rows: str, *, name: str = "", tall: bool = False) -> str:
    """A table (its inner HTML) that scrolls sideways where the window is narrow, and down where it is ``tall``."""
    identifier = f' id="{name}"' if name else ""
    return f'<div class="scroll{" tall" if tall else ""}"><table{identifier}>{rows}</table></div>'
