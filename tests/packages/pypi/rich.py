import io

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table


def use():
    out = io.StringIO()
    console = Console(file=out, width=40, color_system=None)
    table = Table(title="People")
    table.add_column("name")
    table.add_column("n", justify="right")
    table.add_row("[b]ann[/b]", "1")
    console.print(table)
    console.print(Markdown("# Title\n\n- a *b*\n"))
    return out.getvalue()
