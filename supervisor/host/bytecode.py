"""Bytecode for the agent's archive, made by the Python that will run it, before its first start there.

A process of its own does this and imports nothing else of ours: a compiler leaves megabytes in a process for ever.
"""

import importlib.util
import io
import marshal
import zipfile

_UNCHECKED_HASH = (0b01).to_bytes(4, "little")  # PEP 552: a hash of the source that Python does not compare
_TIME = (1980, 1, 1, 0, 0, 0)


def compiled(content: bytes) -> bytes:
    """The archive with these bytes, and beside each source its bytecode for this Python. BadZipFile."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as plain, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for info in plain.infolist():
            source = plain.read(info)
            target.writestr(info, source)
            if info.filename.endswith(".py"):
                code = compile(source, info.filename, "exec", dont_inherit=True)
                # Unchecked: a user who can change one of the two files can also change the other.
                header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH + importlib.util.source_hash(source)
                target.writestr(zipfile.ZipInfo(info.filename + "c", _TIME), header + marshal.dumps(code))
    return buffer.getvalue()
