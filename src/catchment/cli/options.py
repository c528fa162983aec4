"""Options that several commands have: name, type and help of each, declared once.

An option that only one command has is declared in the file of that command.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def flag(help: str, *names: str) -> Parameter:
    """An option without a value. It is off by default and has no `--no-` form."""
    return Parameter(name=names or None, help=help, negative="", show_default=False)


JsonFlag = Annotated[bool, flag("Print JSON instead of text.", "--json")]
