import click
from click.testing import CliRunner


@click.command()
@click.option("--count", default=1, type=click.IntRange(1, 5), help="How often.")
@click.argument("name")
def greet(count, name):
    """Greets NAME."""
    for _ in range(count):
        click.echo(f"hi {name}")


def use():
    runner = CliRunner()
    calls = [["--count", "2", "ann"], ["--count", "9", "ann"], ["--help"]]
    return [[result.exit_code, result.output] for result in (runner.invoke(greet, call) for call in calls)]
