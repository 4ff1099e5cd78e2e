"""`spot`: the list of commands, and what every ending looks like.

A command's module is imported when that command runs: `spot --help` needs only this file (150 ms at most).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from supervisor.cli import exits

# name -> (module of supervisor.cli, attribute, one line for --help); in the order of a run's life.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "up": ("server.background", "up", "Start the supervisor in the background."),
    "down": ("server.background", "down", "End it; trainings go on."),
    "serve": ("server.server", "serve", "Run the supervisor in this terminal, or as a service."),
    "backup": ("server.server", "backup", "Copy the database while the supervisor goes on."),
    "migrate": ("server.server", "migrate", "Bring the database to this version's schema."),
    "webhook": ("server.webhook", "webhook", "Who is told: Slack, Discord, your own receiver."),
    "build-image": ("files.build_image", "build_image", "Build a folder's training image and push it."),
    "submit": ("runs.submit", "submit", "Submit a run: a YAML file, or flags and a command."),
    "ls": ("runs.runs", "ls", "List runs, or machines."),
    "show": ("runs.runs", "show", "Show one run and its attempts."),
    "watch": ("runs.watch", "watch", "Follow a run until it ends."),
    "wait": ("runs.watch", "wait", "Wait silently until a run ends."),
    "logs": ("runs.logs", "logs", "Print the log of an attempt; -f follows it."),
    "serial": ("machines.serial", "serial", "Print the end of a machine's console: boot, driver, container."),
    "events": ("runs.logs", "events", "Print what happened to a run, and why."),
    "cost": ("runs.cost", "cost", "What runs have cost so far, and what their files cost."),
    "prices": ("machines.prices", "prices", "What machines cost per hour; `refresh` asks Google anew."),
    "gpus": ("machines.machines", "gpus", "This computer's GPUs; those set aside as broken come back here."),
    "provider": ("machines.providers", "provider", "Where machines come from: `list`, and `show` NAME."),
    "zones": ("machines.prices", "zones", "Where machines could be had lately, and where not."),
    "change": ("runs.change", "change", "Other labels, limits or zones for a run that exists."),
    "stop": ("runs.control", "stop", "Stop a run; its checkpoint is kept."),
    "resume": ("runs.control", "resume", "Start a run that has ended again, from its checkpoint."),
    "retry": ("runs.control", "retry", "Ask for the machine of a waiting run now."),
    "gc": ("machines.machines", "gc", "Release machines of this supervisor that serve no run."),
    "import": ("server.importing", "import_run", "Take over a run of the older shell runner."),
    "purge": ("runs.cost", "purge", "Delete all files of a run that is over."),
    "pull": ("files.pull", "pull", "Fetch a run's results, compared with their checksums."),
    "approve": ("runs.control", "approve", "Let a machine go after its results were verified."),
    "health": ("server.doctor", "health", "Is the supervisor well, and does any run need a person?"),
    "doctor": ("server.doctor", "doctor", "Check this computer and the cloud; each fault with its fix."),
    "trial": ("server.trial", "trial", "Try the whole way on a real Google project, for cents."),
    "token": ("server.token", "token", "Tokens: who may ask, and for what."),
    "config": ("server.server", "config", "Show the settings and where each comes from."),
    "dev": ("server.dev", "dev", "Disasters on purpose; a Spot VM can be preempted."),
    "docs": ("server.docs", "docs", "Print documents that are drawn from the code."),
    "completion": ("server.docs", "completion", "Print the completion script of a shell."),
}


# How `spot --help` groups them: by what a person is about to do.
SECTIONS = {
    "Set up": "doctor trial up down serve config token webhook build-image prices import backup migrate",
    "Train": "submit change stop resume retry approve pull",
    "Look": "ls show watch wait logs serial events cost provider zones gpus health",
    "Clean up": "gc purge",
    "More": "dev docs completion",
}
# What such things are called elsewhere, the older shell runner among them -> what it is called here.
OTHER_WORDS = {
    "start": "up",
    "daemon": "up",
    "shutdown": "down",
    "quit": "down",
    "status": "show",
    "describe": "show",
    "list": "ls",
    "ps": "ls",
    "machines": "ls --machines",
    "delete": "stop",
    "cancel": "stop",
    "kill": "stop",
    "run": "submit",
    "launch": "submit",
    "plan": "submit --dry-run",
    "restart": "resume",
    "build": "build-image",
    "preempt": "dev preempt",
    "cleanup": "gc",
    "console": "serial",
    "settings": "config show",
    "providers": "provider list",
    "check": "doctor",
    "login": "token create",
    "auth": "token",
}


class LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(f"supervisor.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = [OTHER_WORDS[args[0]]] if args[0] in OTHER_WORDS else []
            near = near or get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else " `spot --help` lists the commands."
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][2]) for name in names.split()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="spot-supervisor", prog_name="spot")
def cli() -> None:
    """Keeps trainings alive on machines that may be taken away.

    RUN may be left out where a command takes one: the only active run is meant, else the newest.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 the run ended without completing, 4 not allowed, 5 not found,
    6 conflict, 7 supervisor unreachable, 8 timeout, 130 detached.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point of `spot`. Ends the process with one of the exit codes above."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if "_SPOT_COMPLETE" in os.environ:  # the shell asks for completions, by way of click
        cli.main(prog_name="spot", complete_var="_SPOT_COMPLETE")
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(args: list[str]) -> int:
    """One command line: its exit code; what went wrong is on standard error."""
    from supervisor.domain.errors import SpotError

    try:
        with cli.make_context("spot", list(args)) as ctx:
            if os.environ.get("NO_COLOR"):
                ctx.color = False
            cli.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _with_the_nearest(error).show()
        return error.exit_code
    except exits.CliError as error:
        show_error(error.text, error.code, getattr(error, "errors", ()), error.hints)
        return error.exit_code
    except SpotError as error:
        show_error(error.detail, error.code, error.errors, ())
        return _exit_code_of(error.code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nAborted; nothing more was asked of the supervisor.", err=True)
        return exits.DETACHED
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    return exits.OK


def _with_the_nearest(error: click.ClickException) -> click.ClickException:
    """A misspelled option or choice is answered with the one that is probably meant."""
    from difflib import get_close_matches

    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        params = error.ctx.command.params
        option_names = [name for param in params for name in (*param.opts, *param.secondary_opts) if name[:2] == "--"]
        near = get_close_matches(error.option_name.replace("_", "-").lower(), option_names, n=1)
        return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        given = re.match(r"'(.*)' is not one of ", error.message)
        words = [str(word) for word in kind.choices] if isinstance(kind, click.Choice) and given else []
        near = get_close_matches(given.group(1).replace("-", "_").lower(), words, n=1) if given else []
        if near:
            return click.BadParameter(f"{error.message} Did you mean {near[0]!r}?", error.ctx, error.param)
    return error


def show_error(text: str, code: str, errors: Sequence[tuple[str, str]] = (), hints: Sequence[str] = ()) -> None:
    """`error: what happened   (CODE)`, then each wrong field, then what may help."""
    from supervisor.cli.output import safe

    prefix = click.style("error:", fg="red", bold=True)
    message = _broken(f"error: {safe(text)}" + (f"     ({safe(code)})" if code else ""))
    click.echo(prefix + message.removeprefix("error:"), err=True)
    if len(errors) == 1 and " ".join(errors[0]) in text:  # it has been said
        errors = ()
    for pointer, detail in errors:
        click.echo(_broken(f"  {safe(pointer)}: {safe(detail)}" if pointer else f"  {safe(detail)}"), err=True)
    for hint in hints:  # never broken: it is there to be pasted
        click.echo(f"  {safe(hint)}", err=True)


def _broken(text: str) -> str:
    """Between words where a person reads at a terminal; else one line."""
    from supervisor.cli.output import paragraph

    return "\n".join(paragraph(text, "  ")) if sys.stderr.isatty() else text


def _exit_code_of(code: str) -> int:
    if code in ("SETTINGS_REFUSED", "INVALID_TIMEOUTS", "INVALID_REQUEST", "IMAGE_BUILD_REFUSED"):
        return exits.USAGE
    at_odds = ("DATA_DIR_HELD", "DATABASE_NEW", "DATABASE_OTHER")
    return exits.CONFLICT if code in at_odds else exits.FAILED


if __name__ == "__main__":
    main()
