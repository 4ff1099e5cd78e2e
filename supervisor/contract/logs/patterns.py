"""The one table of words in a log that say something about an end.

Each line of the log is compared by itself. The whole output is searched for TRIGGERS only: few and rare, because a
healthy log must cost nearly nothing. A line with a trigger is compared with the table: a pattern matches where one of
its anchors is in the line and its expression is found. An expression has no unbounded repetition, so no line can make
it slow. Each text of an error that is known has an example in the tests, which fails if no trigger is in it.

Write a pattern for the mechanism, not for one version of a message: the texts of several versions, programs and
languages of one error are one pattern. `meaning` is for readers and for docs; rules refer to the id.
"""

from __future__ import annotations

from typing import Tuple

from supervisor.contract.logs.phrases import (
    DEVICE,
    GOES_ON,
    OF_A_SERVER,
    OUT,
    OUT_PARTS,
    SAID,
    SPACE_TEXTS,
    Pattern,
    cause,
    pattern,
)
from supervisor.contract.signs import CASCADE, SIGN, TEARDOWN

_MEMORY = (
    cause(
        "gpu_oom", "a GPU has no memory left for what the command asked for",
        b"out of memory", b"OutOfMemoryError", b"STATUS_ALLOC_FAILED", b"RESOURCE_EXHAUSTED", b"OUT_OF_MEMORY",
        b"cudaErrorMemoryAllocation", b"OOM when allocating", b"out of GPU memory", *OUT_PARTS,
        regex=SAID + rb"(?:(?:CUDA|HIP|XPU) out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        rb"|(?:torch|cupy)\.(?:\w{1,12}\.)?(?:\w{1,12}\.)?OutOfMemoryError(?!\))"
        rb"|OOM when allocating tensor|(?:CUBLAS|CUDNN|CUSOLVER)_STATUS_ALLOC_FAILED|[Oo]ut of (?:GPU|device) memory"
        rb"|RESOURCE_EXHAUSTED: {0,2}(?:Out of memory|XLA|Failed to allocate)|[Oo]ut of memory error on GPU)"
        rb"|(?i:\b(?:cuda|gpu|hip|device)[a-z]{0,20}\b)[^'\"`]{0,120}(?:[:)] {1,2}|[0-9] ')out of memory"
        rb"|^" + GOES_ON + rb"(?=.{0,400}" + DEVICE + rb").{0,400}" + SAID + OUT,
    ),
    cause(
        "worker_killed", "a worker process was killed, in most cases by the kernel for memory",
        b"killed by signal: Killed", b"Signals.SIGKILL", b"BrokenProcessPool", b"TerminatedWorkerError", b"SIGKILL",
        b"exitcode", b"exited unexpectedly", b"signal 9", b"abruptly",
        regex=rb"killed by signal: Killed|died with <Signals\.SIGKILL|BrokenProcessPool|TerminatedWorkerError"
        rb"|Signal 9 \(SIGKILL\) received|exitcode {0,3}:? {0,4}-9\b|terminated with signal SIGKILL|exited on signal 9"
        rb"|DataLoader worker.{0,40}exited unexpectedly|process.{0,40}(?:terminated abruptly|abruptly died)"
        rb"|SIGKILL\(-9\)",
    ),
    cause(
        "memory_refused", "the operating system, or what starts the command, refused memory of the host",
        b"MemoryError", b"bad_alloc", b"allocate memory", b"Unable to allocate", b"[Errno 12]", b"not enough memory",
        b"running low on memory", b"heap", b"GC overhead limit", b"emory size of", b"runtime: out of memory",
        b"cannot allocate vector",
        regex=rb"(?<![\w\"'`])MemoryError\b|std::bad_alloc|[Cc]annot allocate memory|Unable to allocate [\d.]{1,12} .iB"
        rb"|\[Errno 12\]|DefaultCPUAllocator: not enough memory|DefaultCPUAllocator: can't allocate memory"
        rb"|due to the node running low on memory|heap out of memory|[Hh]eap (?:space|limit)|GC overhead limit"
        rb"|Allowed memory size of \d{1,20} bytes exhausted|runtime: out of memory|cannot allocate vector of size",
    ),
    cause(
        "kernel_oom", "the kernel or the platform says that it killed for memory",
        b"oom_kill", b"oom-kill", b"Out of memory: Killed", b"OOM Killed", b"OOMKilled", b"cgroup out of memory",
        regex=rb"Detected \d{1,6} oom[_-]kill event|oom[_-]kill event in|[Oo]ut of memory: Killed process"
        rb"|OOM Killed|\bOOMKilled\b|oom-kill:constraint=",
    ),
    cause(
        "shared_memory", "the shared memory is too small for what data loaders pass through it",
        b"shared memory", b"Bus error", b"torch_shm_manager", b"/torch_",
        regex=rb"insufficient shared memory|killed by signal: Bus error|"
        rb"unable to (?:open|resize|mmap|allocate).{0,40}shared memory"
        rb"|unable to (?:open|write to|resize) (?:shared memory object|file) </torch_|error executing torch_shm_manager"
        rb"|unable to mmap \d{1,20} bytes from file </torch_",
    ),
)  # fmt: skip

_DISKS = (
    cause(
        "no_space", "a disk or a quota has no bytes or no inodes left",
        b"[Errno 28]", b"ENOSPC", b"os error 28", b"errno 28", b"errno=28", b"[Errno 122]", b"EDQUOT",
        b"quota exceeded", b"o space left", b"disk is full", b"disk full", b"enough free space",
        *(text.encode() for text in SPACE_TEXTS[1:]),
        regex=SAID + rb"(?:(?:Disk )?quota exceeded|\[Errno 28\]|\[Errno 122\]|\bENOSPC\b|\bEDQUOT\b|\(os error 28\)"
        rb"|\berrno[ =]28\b|no space left on device|disk is full|\bdisk full\b|[Nn]ot enough free space to write|"
        + b"|".join(text.encode() for text in SPACE_TEXTS) + rb")",
    ),
    cause(
        "torn_write", "a file could not be written to its end, in most cases because the disk is full",
        b"iostream error", b"unexpected pos", b"PytorchStreamWriter", b"rote only",
        regex=rb"[Ww]rote only \d{1,20} of \d{1,20} bytes|basic_ios::clear: iostream error"
        rb"|unexpected pos \d{1,20} vs|PytorchStreamWriter failed",
    ),
    cause(
        "torn_file", "a file that is read was not written to its end",
        b"PytorchStreamReader", b"central directory", b"archive is corrupted", b"Ran out of input", b"HeaderTooLarge",
        b"MetadataIncompleteBuffer", b"InvalidHeader", b"not a zip file", b"truncated file",
        b"pickle data was truncated", b"unexpected EOF",
        regex=rb"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted"
        rb"|EOFError: Ran out of input|HeaderTooLarge|MetadataIncompleteBuffer|InvalidHeaderDeserialization"
        rb"|BadZipFile|pickle data was truncated|unexpected EOF, expected|\(truncated file\?\)|truncated file: eof",
    ),
    cause(
        "write_limit", "a file grew to a limit of the process or the file system, which is no full disk",
        b"File too large", b"[Errno 27]", b"SIGXFSZ", b"File size limit exceeded",
    ),
    cause(
        "read_only", "a file system can only be read", b"Read-only file system", b"[Errno 30]",
    ),
    cause(
        "disk_error", "a disk or a mount reported an error",
        b"Input/output error", b"[Errno 5]", b"Stale file handle", b"[Errno 116]", b"Transport endpoint",
        b"[Errno 107]",
        regex=rb"Input/output error|\[Errno 5\]|Stale file handle|\[Errno 116\]|Transport endpoint is not connected",
    ),
    cause("too_many_files", "the limit of open files", b"Too many open files", b"[Errno 24]", b"items of ancdata"),
)  # fmt: skip

_CARDS = (
    cause(
        "no_gpu", "no GPU can be used from here",
        b"CUDA-capable device", b"CUDA GPUs are available", b"Found no NVIDIA driver", b"No GPU detected",
        b"cudaErrorNoDevice", b"CUDA_ERROR_NO_DEVICE", b"libcuda.so", b"NVIDIA-SMI has failed", b"initialize NVML",
        b"No devices were found", b"invalid device ordinal", b"cudaErrorDevicesUnavailable",
        regex=rb"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|No GPU detected"
        rb"|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|libcuda\.so.{0,60}cannot open|NVIDIA-SMI has failed"
        rb"|No devices were found"
        rb"|Failed to initialize NVML|invalid device ordinal|CUDA-capable devices? (?:\(s\) )?(?:is/)?are busy",
    ),
    cause(
        "driver_old", "the driver of the machine is too old for the CUDA of the image",
        b"driver version is insufficient", b"driver on your system is too old", b"InsufficientDriver",
        b"forward compatibility", b"unsupported display driver", b"SYSTEM_DRIVER_MISMATCH", b"COMPAT_NOT_SUPPORTED",
        b"unsatisfied condition: cuda", b"requirement error", b"UNSUPPORTED_PTX_VERSION", b"UnsupportedPtxVersion",
        b"unsupported toolchain",
        regex=rb"driver version is insufficient|driver on your system is too old|InsufficientDriver"
        rb"|forward compatibility was attempted|unsupported display driver|SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED"
        rb"|unsatisfied condition: cuda|UNSUPPORTED_PTX_VERSION|UnsupportedPtxVersion|unsupported toolchain",
    ),
    cause(
        "no_kernel", "the framework was not built for this type of GPU",
        b"no kernel image is available", b"NoKernelImageForDevice", b"NO_BINARY_FOR_GPU",
        b"is not compatible with the", b"GPUs or newer", b"ARCH_MISMATCH",
        regex=rb"ARCH_MISMATCH|no kernel image is available|NoKernelImageForDevice|NO_BINARY_FOR_GPU"
        rb"|CUDA capability sm_\d{1,4} is not compatible with the|only supports .{1,40} GPUs or newer",
    ),
    cause(
        "cuda_mismatch", "two parts of the image were built for different versions of CUDA",
        b"detected CUDA version", b"compiled with CUDA", b"different CUDA versions", b"with CUDA enabled",
        regex=rb"detected CUDA version.{0,60}mismatches|not compiled with CUDA|have different CUDA versions"
        rb"|were compiled with different CUDA|not compiled with CUDA enabled",
    ),
    cause(
        "container_runtime", "the container runtime refused how it was called for GPUs",
        b"invalid runtime", b"unknown runtime", b"CDI device", b"device driver \"", b"nvidia-container-cli",
        regex=rb"unknown or invalid runtime|unknown runtime specified|unresolvable CDI device"
        rb"|failed to inject CDI device"
        rb"|could not select device driver|nvidia-container-cli: .{0,80}error",
    ),
    cause(
        "gpu_hardware", "a GPU or its link failed",
        b"uncorrectable ECC", b"fallen off the bus", b"GPU is lost", b"cudaErrorECC", b"ECC_UNCORRECTABLE",
        b"HARDWARE_STACK", b"uncorrectable NVLink", b"nvlink error", b"GPU Hang", b"HW Exception",
        regex=SAID + rb"(?:uncorrectable (?:ECC|NVLink) error|(?:GPU )?has fallen off the bus|GPU is lost"
        rb"|cudaErrorECCUncorrectable|ECC_UNCORRECTABLE|HARDWARE_STACK_ERROR|uncorrectable nvlink error"
        rb"|HW Exception by GPU|reason: ?GPU Hang)",
    ),
    cause(
        "cuda_program", "the program used a GPU wrongly: an index or an address out of bounds",
        b"device-side assert", b"illegal memory access", b"misaligned address", b"unspecified launch failure",
        b"cudaErrorAssert", b"CUDA_ERROR_ILLEGAL_ADDRESS", b"illegal instruction was encountered",
    ),
    Pattern(
        "xid", SIGN, "the driver's line about an error of a GPU; the code says whether the hardware failed",
        (b"Xid",), rb"Xid {0,2}\([^)]{1,60}\): {0,4}\d{1,3}\b", at_end=False,
    ),
)  # fmt: skip

_CODE = (
    cause(
        "module_missing", "a module of Python is not installed in the environment that the command uses",
        b"ModuleNotFoundError", b"No module named",
        regex=rb"ModuleNotFoundError|ImportError: No module named|python[\d.]{0,6}: No module named",
    ),
    cause(
        "package_missing", "a package of another language is not installed",
        b"no package called", b"Cannot find module", b"cannot load such file",
        regex=rb"there is no package called|Cannot find module '|cannot load such file -- ",
    ),
    cause(
        "import_failed", "a module is installed and cannot be loaded",
        b"ImportError", b"undefined symbol", b"cannot open shared object", b"symbol lookup error",
        b"' not found (required",
        regex=rb"ImportError: (?!No module)|undefined symbol: |cannot open shared object file|symbol lookup error"
        rb"|version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,10}' not found",
    ),
    cause(
        "line_ends", "a script has the line ends of Windows",
        b"\\r", b"^M", b"set: -: invalid", b"Illegal option -", b": not found", b": command not found",
        b"invalid option",
        regex=rb"\$'[^']{0,80}\\r'|\\r(?:'|\xe2\x80\x99): |\^M: bad interpreter|bad interpreter: \S{1,80}\^M"
        rb"|\S\^M: {0,2}(?i:no such|not found|command not)|set: -: invalid option|set: Illegal option -$"
        rb"|^: (?:command )?not found$|^: invalid option",
    ),
    cause(
        "command_missing", "a program does not exist on the machine",
        b"command not found", b": not found", b"executable file not found",
        regex=rb"\S: command not found|: \d{1,6}: \S.{0,200}: not found$|executable file not found in \$PATH",
    ),
    cause("exec_format", "a program was built for another kind of processor", b"xec format error",
    b"execute binary file"),
    cause(
        "config", "the configuration of the command is wrong",
        b"is not a mapping", b"override", b"Override", b"ConfigAttributeError", b"ConfigKeyError", b"mandatory value",
        b"InterpolationKeyError", b"ConfigCompositionException", b"MissingConfigException", b"ConfigTypeError",
        b"ValidationError", b"not in struct", b"ScannerError", b"ParserError",
        regex=rb"is not a mapping|Could not override|Override path|[Nn]o override|Error parsing override"
        rb"|Config(?:Attribute|Key|Type)Error"
        rb"|[Mm]issing mandatory value|InterpolationKeyError|ConfigCompositionException|MissingConfigException"
        rb"|ValidationError|is not in struct|yaml\.(?:scanner|parser)\.\w{1,20}Error",
    ),
    cause(
        "arguments", "the command was called with wrong arguments",
        b"unrecognized arguments", b"arguments are required", b": invalid choice", b"expected one argument",
        b"No such option", b"unexpected keyword argument",
    ),
    cause(
        "shapes", "tensors have shapes or types that do not fit together",
        b"shapes cannot be multiplied", b"size mismatch", b"must match the size of tensor",
        b"must match the existing size", b"not aligned", b"could not broadcast", b"Expected input batch_size",
        b"loading state_dict", b"is invalid for input", b"expected scalar type", b"Sizes of tensors must match",
        b"inconsistent tensor size", b"expected input",
        regex=rb"shapes cannot be multiplied|size mismatch|must match the (?:size of tensor|existing size)"
        rb"|shapes \(.{0,40}\) (?:and|not) .{0,40}aligned|could not broadcast|Expected input batch_size"
        rb"|Error\(s\) in loading state_dict|is invalid for input of size|expected scalar type"
        rb"|Sizes of tensors must match|inconsistent tensor size|expected input.{0,60}to have \d{1,9} channels",
    ),
    cause("syntax", "the code is no valid program", b"SyntaxError:", b"IndentationError:", b"TabError:",
    b"syntax error near"),
    cause(
        "plot_size", "a figure is larger than the plotting library can draw", b"2^16", b"Image size of",
        regex=rb"less than 2\^16|Image size of \d{1,12}x\d{1,12} pixels is too large",
    ),
    cause(
        "tracker_key", "the experiment tracker has no key",
        b"No API key configured", b"api_key not configured", b"Disabled WandB", b"API key must be", b"wandb login",
        b"CometConfigError", b"NeptuneMissingApiToken", b"API key", b"wandb.", b"mlflow", b"neptune", b"comet",
        b"clearml",
        regex=rb"\b(?:wandb|mlflow|neptune|comet_ml|clearml)\b.{0,200}(?i:api.?(?:key|token)|\b40[13]\b|unauthori[sz]ed"
        rb"|forbidden|permission|credential|not configured|not logged in)|No API key configured|api_key not configured"
        rb"|Disabled WandB|API key must be \d{1,3} characters"
        rb"|API key .{0,60}(?:invalid|missing|required)|requires an API key|CometConfigError"
        rb"|UsageError: .{0,80}wandb login|Please configure.{0,40}API|NeptuneMissingApiToken",
    ),
    cause(
        "hub_access", "a model or a data set may not be read with this account",
        b"GatedRepoError", b"RepositoryNotFoundError", b"Client Error", b"Invalid user token", b"AccessDenied",
        b"Access denied", b"Forbidden", b"Unauthorized", b"does not have storage.",
        regex=rb"GatedRepoError|RepositoryNotFoundError|40[13] Client Error|Invalid user token|\bAccessDenied\b"
        rb"|40[13] (?:Forbidden|Unauthorized)|does not have storage\.[a-z.]{1,40} access",
    ),
    cause("rate_limited", "a service takes no more requests for now", b"429 Client Error", b"Too Many Requests"),
    cause(
        "no_network", "an address cannot be resolved or reached",
        b"name resolution", b"NameResolutionError", b"resolve host", b"Network is unreachable",
        b"Name or service not known", b"No route to host", b"[Errno -3]", b"[Errno -2]", b"[Errno 101]",
        b"getaddrinfo failed",
        regex=rb"name resolution|NameResolutionError|[Cc]ould not resolve host|Network is unreachable"
        rb"|Name or service not known|No route to host|\[Errno -[23]\]|\[Errno 101\]|getaddrinfo failed",
    ),
    cause("port_in_use", "another process uses the port", b"ddress already in use", b"EADDRINUSE", b"[Errno 98]"),
    cause(
        "no_threads", "the limit of processes or threads", b"start new thread", b"pthread_create",
        b"retry: Resource temporarily",
        regex=rb"can't start new thread|pthread_create (?:failed|has failed)|fork: retry: Resource temporarily",
    ),
    pattern(
        "nan_loss", SIGN, "a loss is not a number",
        (b"nan", b"NaN", b"NAN"), rb"(?i:loss)[\"']?\]?.{0,3}(?:is |became |: |= ?)? ?(?:nan|NaN|NAN)\b",
    ),
    cause(
        "crash", "a process crashed in native code",
        b"core dumped", b"Segmentation fault", b"Fatal Python error", b"terminate called", b"double free", b"SIGSEGV",
        b"SIGABRT", b"Illegal instruction", b"exitcode",
        regex=rb"core dumped|Segmentation fault|Fatal Python error|terminate called after|double free or corruption"
        rb"|exitcode {0,3}:? {0,4}-(?:6|11)\b|Signal (?:6|11) \(SIG|Illegal instruction$"
        rb"|terminated with signal SIG(?:SEGV|ABRT)",
    ),
)  # fmt: skip

# After all others: a text of these two often stands behind a more exact one on the same line.
_GENERAL = (
    cause(
        "memory_out", "memory ran out, and the words do not say which one", *OUT_PARTS,
        regex=rb"^" + GOES_ON + OF_A_SERVER + rb"(?!.{0,400}(?:" + DEVICE + rb"|(?<!No)MemoryError|bad_alloc|DefaultCPU"
        rb"|[Hh]eap (?:out|space|limit)|cannot allocate memory|torch\.|Killed)).{0,400}" + SAID + OUT,
    ),
    cause(
        "file_missing", "a file does not exist", b"FileNotFoundError", b"[Errno 2]", b"No such file",
        regex=rb"FileNotFoundError|\[Errno 2\]|: No such file or directory",
    ),
    cause(
        "program", "the code uses a name that does not exist, or a value as one of another type",
        b"TypeError", b"NameError", b"AttributeError", b"LocalError", b"NotImplementedError", b"ReferenceError",
        b"ConversionError", b"MethodError", b"VarError", b"FunctionError", b"MatchError", b"NullPointer", b"ClassCast",
        b"NullReference", b"InvalidCast", b"nil", b"ndefined", b"nbound", b"not find function", b"object '",
        b"is not a function", b"object method", b"interface conversion", b"rong number of arg", b"empty list",
        b"exhaustive patterns",
        regex=rb"^(?:.{0,80}[\])}\-]:? |\d{1,6}: |.{0,40}Uncaught )?[\w.]{0,160}(?<![A-Za-z_])"
        rb"(?:Type|Name|Attribute|UnboundLocal|NotImplemented|Reference|\w{0,30}Conversion)Error(?:: |$)"
        rb"|\b(?:MethodError|UndefVarError|NoMethodError|UndefinedFunctionError|NoSuchMethodError|MatchError)\b"
        rb"|\b(?:NullPointer|ClassCast|NullReference|InvalidCast)Exception\b"
        rb"|nil pointer dereference|attempt to [\w ]{1,40} a nil value|found nil while unwrapping"
        rb"|interface conversion: "
        rb"|(?:[Uu]ndefined|[Uu]nbound) (?:local )?(?:variable|function|method|subroutine|constant)"
        rb"|could not find function \"|: object '[^']{1,80}' not found|is not a function$"
        rb"|\b[Ww]rong number of arguments|[Cc]an't locate object method|: empty list$|[Nn]on-exhaustive patterns",
    ),
    cause(
        "permission", "the operating system denied access", b"Permission denied", b"PermissionError", b"[Errno 13]",
        b"Operation not permitted",
    ),
)  # fmt: skip

_PLATFORM = (
    pattern("shell_killed", SIGN, "the shell says that a program was killed", (b"Killed",),
             rb"^.{0,200}: line \d{1,6}: {1,8}\d{0,8} {1,8}Killed\b|^\d{0,8} ?Killed {1,40}\S|^Killed$"),
    pattern("time_limit", SIGN, "the platform ended the job at its time limit", (b"DUE TO TIME LIMIT",)),
    pattern("preempted", SIGN, "the platform preempted the job", (b"DUE TO PREEMPTION",
    b"shut down because of spot"),),
    pattern("cancelled", SIGN, "the platform or a person canceled the job", (b"CANCELLED AT",)),
    pattern("hang_up", SIGN, "the connection of the terminal was closed",
             (b"Hangup", b"SIGHUP", b"send disconnect", b"closed by remote host"),
             rb"^(?:.{0,80}: )?Hangup\b|SIGHUP|send disconnect: Broken pipe"
             rb"|Connection to \S{1,80} closed by remote host"),
    pattern("evicted", SIGN, "the platform evicted the container for disk or memory", (b"low on resource", b"Evicted"),
             rb"was low on resource: [a-z-]{1,40}|^Evicted\b"),
)  # fmt: skip

_OTHERS = (
    pattern(
        "nccl", CASCADE, "a collective operation failed because another process or the network did",
        (b"NCCL", b"nccl", b"DistBackendError", b"collective operation timeout", b"Gloo", b"gloo", b"TCPStore"),
        rb"NCCL (?:error|WARN|Error|timeout|communicator)|nccl[A-Z]\w{0,20}Error|DistBackendError"
        rb"|Watchdog caught collective"
        rb"|collective operation timeout|NCCL.{0,80}(?:[Tt]imeout|abort|fail)|[Gg]loo.{0,120}(?:closed|[Tt]imed"
        rb"|[Ee]rror)"
        rb"|TCPStore.{0,80}(?:timeout|failed|closed|error)",
    ),
    pattern(
        "peer_gone", CASCADE, "the process at the other end of a connection is gone",
        (b"peer", b"Broken pipe", b"[Errno 104]", b"[Errno 32]", b"ConnectionResetError", b"BrokenPipeError",
        b"EOFError"),
        rb"(?:closed|reset|lost|terminated).{0,20} peer\b|\bpeer (?:is |has )?(?:gone|closed|reset|exited|died"
        rb"|disconnect)"
        rb"|Broken pipe|\[Errno 104\]|\[Errno 32\]|ConnectionResetError|BrokenPipeError|^EOFError$",
    ),
    pattern(
        "launcher", CASCADE, "a launcher reports that a process of it failed",
        (b"ChildFailedError", b"CalledProcessError", b"ProcessRaisedException", b"ProcessExitedException",
        b"closing signal", b"death signal", b"SignalException", b"Root Cause", b"failed (exitcode", b"local_rank",
        b"srun: error", b"mpirun", b"prterun", b"returned non-zero exit", b"CellExecutionError", b"time      :",
        b"FAILED",
         b"Exited with exit code"),
        rb"ChildFailedError|CalledProcessError|Process(?:Raised|Exited)Exception|closing signal SIG"
        rb"|Received \d{1,2} death signal"
        rb"|SignalException|Root Cause \(first|failed \(exitcode|srun: error: |(?:mpirun|prterun) (?:noticed|detected"
        rb"|has)"
        rb"|returned non-zero exit|CellExecutionError|^\S{1,200} FAILED$|Exited with exit code",
    ),
    pattern(
        "teardown", TEARDOWN, "work after the end of the command's own work",
        (b"wandb:", b"Exception ignored in", b"resource_tracker", b"leaked semaphore", b"_run_exitfuncs",
         b"destroy_process_group", b"Terminated", b"Waiting for W&B", b"sys.excepthook", b"Original exception was"),
        rb"(?:^|\] ?|: )wandb:|Exception ignored in|resource_tracker|leaked semaphore|Error in atexit|_run_exitfuncs"
        rb"|destroy_process_group\(\) was not called|^Terminated$|Waiting for W&B|Error in sys\.excepthook"
        rb"|Original exception was",
    ),
)  # fmt: skip

PATTERNS: Tuple[Pattern, ...] = (*_MEMORY, *_DISKS, *_CARDS, *_CODE, *_GENERAL, *_PLATFORM, *_OTHERS)
