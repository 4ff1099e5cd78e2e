"""What `make record-gpu` runs: small scripts for a Python with torch, after three steps without a card."""

LAST_STEP = 10**6  # the scripts have it as a number

PROBE = """
import json, os, sys, torch
site = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
print(json.dumps([torch.__version__, str(torch.version.cuda), card, sys.executable, site, sys.prefix, sys.base_prefix]))
"""
FULL = """
import torch
total = torch.cuda.mem_get_info()[1]
layers = []
while True:
    layers.append(torch.empty(total // 64, dtype=torch.uint8, device="cuda"))
"""
# Holds memory until its standard input is closed, also by the end of the process that started it.
HOLDER = """
import sys, torch
free = torch.cuda.mem_get_info()[0]
mine = torch.empty(int(free * 0.7), dtype=torch.uint8, device="cuda")
print("holding", flush=True)
sys.stdin.read()
"""
KERNELS = """
import torch
one = torch.randn(8192, 8192, device="cuda")
print("trains", flush=True)
while True:
    for _ in range(20):
        one @ one
    step += 1
    spot_progress.report(step, total=10**6)
"""
ASSERTION = """
import torch
table = torch.zeros(4, device="cuda")
print(table[torch.tensor([9], device="cuda")].cpu())
"""
# A kernel that writes to an address that nobody has, given to the driver as text: no compiler is needed. For
# cards since Turing.
ILLEGAL = '''
import ctypes, torch
KERNEL = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry spoil() {
    .reg .u64 %where;
    .reg .u32 %what;
    mov.u64 %where, 16;
    mov.u32 %what, 1;
    st.global.u32 [%where], %what;
    ret;
}
"""
torch.zeros(1, device="cuda")
driver = ctypes.CDLL("libcuda.so.1")
module, entry = ctypes.c_void_p(), ctypes.c_void_p()
for result in (
    driver.cuModuleLoadData(ctypes.byref(module), KERNEL),
    driver.cuModuleGetFunction(ctypes.byref(entry), module, b"spoil"),
    driver.cuLaunchKernel(entry, 1, 1, 1, 1, 1, 1, 0, None, None, None),
):
    if result:
        sys.exit(f"the kernel did not start: {result}")
torch.cuda.synchronize()
'''
CAUGHT = """
import torch
size = 2 * torch.cuda.mem_get_info()[1]
while True:
    try:
        torch.empty(size, dtype=torch.uint8, device="cuda")
        break
    except RuntimeError as error:
        size //= 4
        print(error, "- retrying with a smaller batch", flush=True)
for step in range(4, 12):
    spot_progress.report(step, total=11)
    time.sleep(0.1)
print("done", flush=True)
"""
NO_CARD = """
import torch
torch.zeros(1, device="cuda")
"""
# The last step is reported while the card still computes.
LOAD = """
import torch
one = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
begun, seconds = time.monotonic(), float(sys.argv[1])
while time.monotonic() < begun + seconds:
    for _ in range(20):
        one @ one
    torch.cuda.synchronize()
    step += 1
    spot_progress.report(step, total=10**6)
print("loaded", flush=True)
spot_progress.report(10**6, total=10**6)
while time.monotonic() < begun + seconds + 3:
    one @ one
    torch.cuda.synchronize()
"""
# The files of a container without the device: /dev has none of the card's.
NO_DEVICES = """
set -e
mkdir -p "$0"
mount -t tmpfs tmpfs "$0"
for name in null zero full random urandom; do touch "$0/$name"; mount --bind "/dev/$name" "$0/$name"; done
mkdir "$0/shm"
ln -s /proc/self/fd "$0/fd"
mount --rbind "$0" /dev
exec "$@"
"""
