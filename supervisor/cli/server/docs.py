"""docs and completion: text made from the code itself."""

from __future__ import annotations

import click


@click.group()
def docs() -> None:
    """Print documents that are drawn from the code."""


@docs.command()
def states() -> None:
    """The statuses, who may move what to what, and the table of causes, as Markdown."""
    from supervisor.wording.diagram import states_markdown

    click.echo(states_markdown(), nl=False)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell; for bash: eval "$(spot completion bash)"."""
    from click.shell_completion import get_completion_class

    from supervisor.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    click.echo(kind(cli, {}, "spot", "_SPOT_COMPLETE").source())
