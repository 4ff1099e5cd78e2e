"""The command's own errors: its setup, its environment, its configuration, its code; and every other exit."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import NOT_FOUND_CODES
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.machine_signs import CONTAINER_OOM, OOM_ROSE
from supervisor.lifecycle.diagnosis.rule import Match, Rule, Sign, Tier
from supervisor.lifecycle.diagnosis.signs import (
    BY_ITSELF,
    IN_SETUP,
    NOT_ENTERED,
    STARTED_JUST_NOW,
    WORKED_BEFORE,
    exit_code,
    failed,
    item_sign,
    quote_of,
)
from supervisor.lifecycle.diagnosis.word_signs import MODULE_IS_ELSEWHERE, cause_is, error_says, has_hit

_ENDED = "The command ended with {exit}[ after {ran}][: `{line}`]"
# Errors that may be over at the next start.
_PASSING = ("no_network", "rate_limited", "port_in_use", "disk_error", "no_threads")
_WARNING = "[ (warning: {disk_warning})]"
_IS_REPEATED = item_sign(
    "repeat.same",
    "it failed in the same way at the same step as the last time",
    lambda item: Match({}, (quote_of(item),)),
    "its last failure was another one",
)


def _own(
    name: str,
    gotchas: tuple[str, ...],
    pattern: Sign,
    remedies: tuple[str, ...],
    *,
    where: Where = Where.CODE,
    certainty: Certainty = Certainty.CERTAIN,
    because: str = "",
    may_pass: bool = False,
) -> Rule:
    """Words with which the command ended by itself, and which only a change of the code or the spec helps against.
    `may_pass`: they may be over later; a command that got further is repeated once."""
    return Rule(
        name, gotchas, Tier.LOG, (BY_ITSELF, pattern), (), certainty, Cause.USER_ERROR, where, Retry.NEVER,
        _ENDED + (f"; {because}" if because else "") + _WARNING, remedies, may_pass=may_pass,
    )  # fmt: skip


# --- the setup --------------------------------------------------------------------------------------------------------

# A machine without memory or disk is blamed first: those rules know remedies. `pip` reports a network that is down as
# "no matching distribution" at its end, so words of the network anywhere in the setup come before its last line.
_SETUP_ENDED = "The setup ended with {exit}[ after {ran}][: `{line}`]"
_NETWORK = ("no_network", "rate_limited")
_OF_THE_MACHINE = (OOM_ROSE, CONTAINER_OOM, cause_is("no_space"))


def _line(template: str) -> Callable[[Evidence], Match | None]:
    """The agent's own last line, by its words before the first figure."""
    beginning = template.partition("%")[0]

    def find(evidence: Evidence) -> Match | None:
        end = evidence.exit
        return failed(evidence) if end is not None and end.last_line.startswith(beginning) else None

    return find


_WAITED = Sign("another run's setup kept the machine busy", _line(heartbeat.SETUP_WAITED))
_LATE = Sign("the setup reached its limit", _line(heartbeat.SETUP_LATE))
# As pip, apt, conda and git say it.
_UNANSWERED = error_says(
    "timed out", "connection refused", "connection reset", "temporary failure", "could not resolve", "bad gateway",
    "service unavailable", "too many requests", "remote end closed", "connection aborted",
)  # fmt: skip
_OTHERS = has_hit(*_NETWORK) | cause_is(*_NETWORK) | _UNANSWERED


def _setup(
    name: str,
    signs: tuple[Sign, ...],
    sentence: str,
    remedies: tuple[str, ...],
    *,
    where: Where = Where.CODE,
    retry: Retry = Retry.ONCE_IDENTICAL,
    goes_on: bool | None = None,
) -> Rule:
    return Rule(
        f"SETUP.{name}", (), Tier.AGENT, (IN_SETUP, BY_ITSELF, *signs), _OF_THE_MACHINE, Certainty.CERTAIN,
        Cause.SETUP_FAILED, where, retry, sentence, remedies, (), goes_on,
    )  # fmt: skip


SETUP = (
    _setup("waited", (_WAITED,), "{line}", ("longer_setup",), where=Where.MACHINE, goes_on=True),
    _setup("late", (_LATE,), "{line}", ("longer_setup", "base_image")),
    _setup(
        "network", (_OTHERS,), _SETUP_ENDED + "; the network or a service did not answer",
        ("other_machine", "base_image"),
        where=Where.PLACE, goes_on=True,
    ),
    _setup(
        "known", (cause_is("package_missing", "module_missing", "syntax", "exec_format", "arguments")
        | exit_code(*NOT_FOUND_CODES),),
        _SETUP_ENDED, ("fix_setup",), retry=Retry.NEVER,
    ),
    _setup("exit", (), _SETUP_ENDED, ("fix_setup",)),
)  # fmt: skip

STARTS = (
    Rule(
        "U5.not_entered", ("U5",), Tier.AGENT, (NOT_ENTERED,), (), Certainty.CERTAIN, Cause.COMMAND_NOT_FOUND,
        Where.CODE, Retry.NEVER, "The command was not started: {line}", ("check_command", "set_conda_env"),
    ),
    Rule(
        "U26.line_ends", ("U26", "GEN4"), Tier.AGENT, (exit_code(1, 2, *NOT_FOUND_CODES), has_hit("line_ends")
        | cause_is("line_ends")),
        (), Certainty.CERTAIN, Cause.USER_ERROR, Where.CODE, Retry.NEVER,
        _ENDED + "; a script has the line ends of Windows", ("fix_line_ends",),
    ),
    Rule(
        "CODE.not_found", ("U26",), Tier.AGENT, (BY_ITSELF, exit_code(*NOT_FOUND_CODES)), (WORKED_BEFORE,),
        Certainty.CERTAIN, Cause.COMMAND_NOT_FOUND, Where.CODE, Retry.NEVER, _ENDED, ("check_command",),
    ),
)  # fmt: skip

RULES = (
    _own(
        "U5.environment", ("U5",), cause_is("module_missing") & MODULE_IS_ELSEWHERE, ("set_conda_env",),
        because="the environment {environment} was not active",
    ),
    _own("U5.module", ("U5", "GEN5"), cause_is("module_missing"), ("set_conda_env", "install_module", "run_smoke")),
    _own("U5.import", ("U5", "GEN5"), cause_is("import_failed"), ("install_module", "run_smoke"), where=Where.IMAGE,
         certainty=Certainty.LIKELY),
    _own("U27.config", ("U27",), cause_is("config", "arguments"), ("fix_config",), certainty=Certainty.LIKELY),
    _own(
        "U28.layers", ("U28",), cause_is("no_kernel", "cuda_mismatch"), ("fix_layers",), where=Where.IMAGE,
        because="driver, image and framework are built for different versions or cards",
    ),
    _own(
        "U35.tracker", ("U35",), cause_is("tracker_key"), ("add_secret",), where=Where.ACCOUNT,
        certainty=Certainty.LIKELY, may_pass=True,
    ),
    _own(
        "0-B.access", ("0-B",), cause_is("hub_access", "permission"), ("grant_role", "add_secret"),
        where=Where.ACCOUNT, certainty=Certainty.LIKELY, may_pass=True,
    ),
    _own("U37.plot", ("U37",), cause_is("plot_size"), ("fix_reporting",), certainty=Certainty.LIKELY),
    _own(
        "GEN5.code", ("GEN5",), cause_is("syntax", "exec_format", "package_missing"), ("fix_code", "run_smoke"),
        certainty=Certainty.LIKELY,
    ),
    _own(
        "GEN5.program", ("GEN5",), cause_is("program"), ("fix_code", "run_smoke"), certainty=Certainty.LIKELY,
        because="the code uses what does not exist, or a value as another type",
    ),
    _own("GEN5.shapes", ("GEN5", "NB2"), cause_is("shapes"), ("fix_code", "run_smoke"), certainty=Certainty.LIKELY),
    _own(
        "U6.write_limit", ("U6",), cause_is("write_limit"), ("fix_config",), certainty=Certainty.LIKELY,
        because="a file reached a limit of the process; the disk is not full",
    ),
    _own(
        "U28.driver", ("U28",), cause_is("driver_old"), ("other_driver",), where=Where.IMAGE,
        because="the driver of the machine is too old for the CUDA of the image",
    ),
    _own("U9.shared_memory", ("U9",), cause_is("shared_memory"), ("larger_shm",), certainty=Certainty.LIKELY,
         may_pass=True),
    _own(
        "U9.refused", ("U9",), cause_is("memory_refused", "memory_out"), ("less_at_once",), certainty=Certainty.LIKELY,
        may_pass=True,
    ),
    _own("SLURM1.torn", ("SLURM1", "U6"), cause_is("torn_file"), ("save_at_step_end",), where=Where.DATA,
         certainty=Certainty.LIKELY, because="a file that it reads was not written to its end", may_pass=True),
    _own(
        "U22.program", ("U22",), cause_is("cuda_program"), ("fix_code",), certainty=Certainty.LIKELY,
        because="the program used the GPU wrongly; the card is not blamed", may_pass=True,
    ),
)  # fmt: skip

LAST = (
    Rule(
        "GEN5.start", ("GEN5",), Tier.FIGURES, (BY_ITSELF, STARTED_JUST_NOW), (cause_is(*_PASSING),),
        Certainty.LIKELY, Cause.USER_ERROR, Where.CODE, Retry.NEVER,
        _ENDED + "; a smoke would have shown it" + _WARNING, ("fix_code", "run_smoke"),
    ),
    Rule(
        "SAME.twice", ("U27",), Tier.FIGURES, (BY_ITSELF, _IS_REPEATED), (), Certainty.CERTAIN, Cause.USER_ERROR,
        Where.CODE, Retry.NEVER, _ENDED + "; the same error at the same step as the last time", ("fix_code",),
    ),
    Rule(
        "CODE.exit", (), Tier.FIGURES, (BY_ITSELF,), (), Certainty.LIKELY, Cause.USER_ERROR, Where.CODE,
        Retry.ONCE_IDENTICAL, _ENDED + _WARNING, ("fix_code",),
    ),
)  # fmt: skip
