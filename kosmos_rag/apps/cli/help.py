"""Help of groups of commands: commands under headings, and descriptions in full."""

from typing import Any

from typer.core import TyperGroup

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}
"""Settings of the outermost group; the others inherit them."""

_UNCUT = 10_000
_OTHER = "Commands"


class HelpGroup(TyperGroup):
    """A group whose help wraps descriptions, and lists commands by `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands under the headings of their panels.

        Panels have the order of their first commands.
        """
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is None or command.hidden:
                continue
            panel = getattr(command, "rich_help_panel", None)
            rows = panels.setdefault(panel if isinstance(panel, str) else _OTHER, [])
            rows.append((name, command.get_short_help_str(_UNCUT)))
        # One width for all panels, so that their descriptions begin in one column.
        width = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])
