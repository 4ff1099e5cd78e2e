"""`spot`: the list of commands, and how each error is printed.

The module of a command is imported when the command runs: `spot --help` needs only this file (150 ms at most).
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence

import click

from supervisor.cli import exits

# Section of `spot --help` -> command -> (module of supervisor.cli, one line of help).
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Set up": {
        "doctor": ("server.doctor", "Check this computer and the cloud; every problem has a fix."),
        "trial": ("server.trial", "Test a whole run on a real Google project, for cents."),
        "up": ("server.background", "Start the supervisor in the background."),
        "down": ("server.background", "Stop the supervisor; trainings continue."),
        "serve": ("server.server", "Run the supervisor in this terminal, or as a service."),
        "config": ("server.server", "Show the settings and where each value comes from."),
        "token": ("server.token", "Create, list and revoke API tokens."),
        "webhook": ("server.webhook", "Send announcements to Slack, Discord or your own receiver."),
        "build-image": ("files.build_image", "Build the training image of a folder and push it."),
        "prices": ("machines.prices", "Show hourly prices; `refresh` reads them from Google."),
        "import": ("server.importing", "Import a run of the older shell runner."),
        "backup": ("server.server", "Copy the database while the supervisor runs."),
        "migrate": ("server.server", "Upgrade the database to the schema of this version."),
    },
    "Train": {
        "smoke": ("runs.smoke", "Run a few steps here, twice, before anything is rented."),
        "submit": ("runs.submit", "Submit a run: a YAML file, or options and a command."),
        "plan": ("runs.submit", "Forecast what a run would cost and when it would end."),
        "change": ("runs.change", "Change labels, limits or zones of a run."),
        "stop": ("runs.control", "Stop a run; its checkpoint is kept."),
        "resume": ("runs.control", "Restart an ended run from its checkpoint."),
        "retry": ("runs.control", "Request the machine of a waiting run now."),
        "drill": ("runs.control", "Prove that a run survives a preemption, without one."),
        "approve": ("runs.control", "Release the machine of a run with verified results."),
        "sync": ("files.syncing", "Send what changed in a folder to the code of a living run."),
        "pull": ("files.pull", "Download the results of a run and verify their checksums."),
    },
    "Look": {
        "ls": ("runs.runs", "List runs, or machines."),
        "show": ("runs.runs", "Show one run and its attempts."),
        "watch": ("runs.watch", "Follow a run until it ends."),
        "wait": ("runs.watch", "Wait silently until a run ends."),
        "logs": ("runs.logs", "Print the log of an attempt; -f follows it."),
        "serial": ("machines.serial", "Print the end of a machine's serial console."),
        "cell": ("runs.notebook", "Print the notebook cell that a waiting run needs."),
        "attach": ("machines.login", "Open a shell on the machine of a run."),
        "exec": ("machines.login", "Run a command beside the training, without SSH."),
        "shell": ("machines.login", "Type commands for the machine of a run, without SSH."),
        "tunnel": ("machines.login", "Open a port of a run's machine on this computer."),
        "events": ("runs.logs", "Print the history of a run, with reasons."),
        "why": ("runs.runs", "Show why an attempt ended, on which evidence, and what helps."),
        "diagnose": ("server.diagnose", "Say what a log or an evidence file means; needs no supervisor."),
        "metrics": ("runs.runs", "Show the metrics that a training has reported."),
        "compare": ("runs.runs", "Compare runs: values, specs, best checkpoint."),
        "gates": ("runs.gates", "Show what was checked for a run, and what is wrong."),
        "incidents": ("runs.incidents", "Show runs that failed alike; close an incident."),
        "cost": ("runs.cost", "Show what runs and their files cost."),
        "bill": ("runs.cost", "Compare our figures with the platform's own bill."),
        "base": ("machines.bases", "Prepared machines: `create NAME`, `ls`, `rm NAME`."),
        "provider": ("machines.providers", "Where machines come from: `list`, `show NAME`, `add NAME`."),
        "zones": ("machines.providers", "Show which zones had machines lately, and which did not."),
        "machine": ("machines.machines", "Kept machines: `ls`, `start`, `stop`, `rm`."),
        "gpus": ("machines.machines", "Show this computer's GPUs; return a repaired one to use."),
        "health": ("server.doctor", "Show whether the supervisor is well and which runs need you."),
    },
    "Clean up": {
        "gc": ("machines.machines", "Release machines of this supervisor that serve no run."),
        "purge": ("runs.control", "Delete all files of an ended run."),
    },
    "More": {
        "dev": ("server.dev", "Cause failures on purpose, such as a preemption."),
        "mcp": ("mcp.serving", "Serve tools for programs by the Model Context Protocol."),
        "docs": ("server.docs", "Print documents that are generated from the code."),
        "completion": ("server.docs", "Print the completion script of a shell."),
    },
}
COMMANDS = {name: command for commands in SECTIONS.values() for name, command in commands.items()}
# What other tools call a command, the older shell runner included -> its name here.
OTHER_NAMES = {
    "start": "up",
    "daemon": "up",
    "shutdown": "down",
    "quit": "down",
    "status": "show",
    "describe": "show",
    "explain": "why",
    "list": "ls",
    "ps": "ls",
    "machines": "ls --machines",
    "delete": "stop",
    "cancel": "stop",
    "kill": "stop",
    "run": "submit",
    "launch": "submit",
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
USAGE_CODES = ("SETTINGS_REFUSED", "INVALID_TIMEOUTS", "INVALID_REQUEST", "IMAGE_BUILD_REFUSED")
CONFLICT_CODES = ("DATA_DIR_HELD", "DATABASE_NEW", "DATABASE_OTHER")


class LazyGroup(click.Group):
    """Knows its commands by name and imports the module of one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"supervisor.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(
            module, {"import": "import_", "exec": "exec_"}.get(cmd_name, cmd_name.replace("-", "_"))
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else "-"
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            near = [OTHER_NAMES[name]] if name in OTHER_NAMES else get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="spot-supervisor", prog_name="spot")
def cli() -> None:
    """Keep trainings running on machines that can be preempted.

    A command that takes RUN works without it: on the only active run, else on the newest run.

    Exit codes: 0 ok, 1 failed, 2 usage, 3 the run ended but not completed, 4 not allowed, 5 not found, 6 conflict,
    7 supervisor unreachable, 8 timeout, 9 the run needs you, 130 detached.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point of `spot`. Ends the process with one of the exit codes above."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if "_SPOT_COMPLETE" in os.environ:  # a shell that completes a word, through click
        cli.main(prog_name="spot", complete_var="_SPOT_COMPLETE")
    sys.exit(run(sys.argv[1:] if argv is None else list(argv)))


def run(args: list[str]) -> int:
    """Run one command line; the exit code. Errors are printed on standard error."""
    from supervisor.domain.errors import SpotError

    try:
        with cli.make_context("spot", list(args)) as ctx:
            if os.environ.get("NO_COLOR"):
                ctx.color = False
            cli.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _show_usage(error)
        return error.exit_code
    except exits.CliError as error:
        show_error(error.text, error.code, error.errors, error.hints)
        return error.exit_code
    except SpotError as error:
        show_error(error.detail, error.code, error.errors)
        if error.code in USAGE_CODES:
            return exits.USAGE
        return exits.CONFLICT if error.code in CONFLICT_CODES else exits.FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("\nAborted; no further request was sent.", err=True)
        return exits.DETACHED
    except BrokenPipeError:
        # The reader (head, less) has left. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exits.OK


def _show_usage(error: click.ClickException) -> None:
    """An error of usage in the form of all errors, with the command that prints the help."""
    ctx = getattr(error, "ctx", None)
    if ctx is None or isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # it is the help itself
        error.show()
        return
    show_error(_with_nearest(error).format_message(), hints=(f"{ctx.command_path} --help",))


def _with_nearest(error: click.ClickException) -> click.ClickException:
    """Adds to a misspelled option or choice the one that is probably meant."""
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


def show_error(text: str, code: str = "", errors: Sequence[tuple[str, str]] = (), hints: Sequence[str] = ()) -> None:
    """`error: what happened     (CODE)`, then each wrong field, then what may help."""
    from supervisor.cli.output import paragraph, safe

    def show(line: str) -> str:
        """Broken between words at a terminal; else one line."""
        return "\n".join(paragraph(line, "  ")) if sys.stderr.isatty() else line

    message = show(f"error: {safe(text)}" + (f"     ({safe(code)})" if code else ""))
    click.echo(click.style("error:", fg="red", bold=True) + message.removeprefix("error:"), err=True)
    if len(errors) == 1 and " ".join(errors[0]) in text:  # the text says it already
        errors = ()
    for pointer, detail in errors:
        click.echo(show(f"  {safe(pointer)}: {safe(detail)}" if pointer else f"  {safe(detail)}"), err=True)
    for hint in hints:  # never broken, because people paste it
        click.echo(f"  {safe(hint)}", err=True)


if __name__ == "__main__":
    main()
