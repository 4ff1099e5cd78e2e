"""What the table of patterns is made of: one pattern, and parts of expressions for one mechanism in many programs."""

from __future__ import annotations

from typing import NamedTuple, Tuple

from supervisor.contract.signs import CAUSE

# Parts of words without their first letter, which may be a capital. `rror` is in nearly every exception of Python.
TRIGGERS = (
    b"rror", b"rrno", b"xcept", b"illed", b"ailed", b"AILED", b"exit", b"signal", b"SIG", b"erminate", b"roken",
    b"CUDA", b"of mem", b"OUT_OF", b"heap", b"OOM", b"oom-kill", b"space", b"exceed", b"nvalid", b"BadZip", b"annot",
    b"nable", b"denied", b"Too ", b"No ", b"Xid", b"NCCL", b"nterpreter", b"llegal", b"not found", b"mapping",
    b"verrid", b"andatory", b"wandb", b"does not have", b"ndefined", b"attempt to ", b"resol",
    b"unavailable", b"nan", b"NaN", b"dumped", b"mentation f", b"rote only", b"an't ",
    b"anic", b"mpty list", b"Hangup", b"closed by", b"low on res", b"leaked",
    b"\\r", b"Speicherplatz", b"\xe7\xa9\xba", b"\xea\xb3\xb5\xea\xb0\x84", b"espa", b"Spazio", b"miejsca",
    b"\xd0\xbc\xd0\xb5\xd1\x81\xd1\x82",
)  # fmt: skip

SPACE_TEXTS = (
    "No space left on device", "Auf dem Gerät ist kein Speicherplatz mehr verfügbar", "设备上没有空间",
    "裝置上已無多餘空間", "デバイスに空き領域がありません", "장치에 남은 공간이 없음",
    "Aucun espace disponible sur le périphérique",
    "No queda espacio en el dispositivo", "Não há espaço disponível no dispositivo", "Spazio esaurito sul device",
    "Brak miejsca na urządzeniu", "На устройстве не осталось свободного места",  # noqa: RUF001
    "There is not enough space on the disk",
)  # fmt: skip


class Pattern(NamedTuple):
    """`at_end`: it is a cause only if the command ended with it. A false one, such as an error of a card, counts
    whenever it came."""

    id: str
    role: str
    meaning: str
    anchors: Tuple[bytes, ...]
    regex: bytes = b""  # "" = an anchor is enough
    at_end: bool = True


def cause(name: str, meaning: str, *anchors: bytes, regex: bytes = b"") -> Pattern:
    return pattern(name, CAUSE, meaning, anchors, regex)


def pattern(name: str, role: str, meaning: str, anchors: Tuple[bytes, ...], regex: bytes = b"") -> Pattern:
    return Pattern(name, role, meaning, anchors, regex, role == CAUSE)


# A phrase between quotes is one that a text talks about; the same in `RuntimeError('…')` is the error itself.
SAID = rb"(?:(?<![\"'`\x93\x9c\x98])|(?<=rror\([\"'])|(?<=tion\([\"'])|(?<=message: [\"']))"

# A program that goes on says so, and the memory that a server lacks is not ours.
GOES_ON = rb"(?!.{0,400}(?:not a failure|trying (?:the|another|again)|[Rr]etrying|[Ff]all(?:s|ing)? back|[Ss]kipping))"
OF_A_SERVER = rb"(?!.{0,400}(?:[Ss]erver|redis|psycopg|mysql|mongo|OperationalError|https?://|[gG][rR][pP][cC]))"
DEVICE = (
    rb"(?i:cuda|\bcu(?:mem|blas|dnn)|gpu|\bhip|xpu|\bmps\b|\bmetal\b|vulkan|opencl|sycl|(?<!left on )device|vram"
    rb"|\bhbm\b|rocm|\btpu\b|\bcl_)"
)
OUT_PARTS = (  # one of them is in each text of OUT
    b"f memory", b"f Memory", b"MEMORY", b"OfMemory", b"emory limit", b"emory alloc", b"xhausted", b"enough ",
    b"nsufficient", b"vailable memory", b"free memory", b"llocate ",
    b"lloc failed", b"exceeds ", b"ALLOC", b"device memory",
)  # fmt: skip
OUT = (
    rb"(?<![\"'`]CUDA )(?<![\"'`]GPU )(?<![\"'`]HIP )(?<!runs )(?<!run )"
    rb"(?:(?i:out[ _-]of[ _-](?:\w{1,8}[ _])?memory)"
    rb"|OutOf\w{0,12}Memory|[Mm]emory (?:is |was )?exhausted|[Mm]emory limit .{0,20}(?:reached|exceeded)"
    rb"|(?:[Nn]ot enough|[Ii]nsufficient|[Nn]o (?:available|free)) (?:\w{1,10} )?memory|[Aa]lloc failed"
    rb"|exceeds (?:the )?max\w{0,5} (?:array size|allocation|buffer)"
    rb"|[Mm]emory allocation (?:of \d{1,20} bytes )?(?:failed|failure|error)|ALLOC(?:ATION)?_FAIL"
    rb"|(?:[Ff]ailed to|[Uu]nable to|[Cc]annot|[Cc]an't|[Cc]ould not) allocate .{0,40}"
    rb"(?:memory|bytes|block|buffer|vector|array|[KMGT]i?B\b))"
)
