/* A management library with made-up cards, so that the calls through ctypes are those of a real one: its structures
 * and constants are written down here once more, from nvml.h. FAKE_NVML_CARDS: how many (2). FAKE_NVML_MINORS: set =
 * cards have device files; else the driver does not say. FAKE_NVML_LOST: a file with the index of a card that is lost
 * while the file is there. FAKE_NVML_QUIET: set = no Xid is told. FAKE_NVML_UTIL: how busy card 0 is (90).
 * FAKE_NVML_USED: MiB in use of card 0 (20000). Card 1 is of a kind without power readings and ECC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, IS_LOST = 15, WRONG_VERSION = 25 };

typedef struct card { unsigned index; } *device;
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2;
typedef struct { device card; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event_data;

static struct card cards[16];
static int begun, event_set, told;
static device watched;

static unsigned count(void) {
    const char *set = getenv("FAKE_NVML_CARDS");
    return set ? (unsigned)atoi(set) : 2;
}

static int lost(unsigned index) {
    const char *path = getenv("FAKE_NVML_LOST");
    FILE *file = path ? fopen(path, "r") : NULL;
    unsigned which;
    int is = file && fscanf(file, "%u", &which) == 1 && which == index;
    if (file) fclose(file);
    return is;
}

int nvmlInit_v2(void) {
    begun = 1;
    for (unsigned n = 0; n < 16; n++) cards[n].index = n;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *found) {
    if (!begun) return 1;
    *found = count();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found) {
    if (index >= count()) return INVALID_ARGUMENT;
    *found = &cards[index];
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device *found) {
    unsigned index;
    if (sscanf(uuid, "GPU-fake-%u", &index) != 1 && sscanf(uuid, "GPU-%8x-0000", &index) != 1) return NOT_FOUND;
    if (lost(index)) return IS_LOST;
    return nvmlDeviceGetHandleByIndex_v2(index, found) ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetMinorNumber(device card, unsigned *minor) {
    if (!getenv("FAKE_NVML_MINORS")) return NOT_SUPPORTED;
    *minor = card->index;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(device card, utilization *found) {
    if (lost(card->index)) return IS_LOST;
    found->gpu = (getenv("FAKE_NVML_UTIL") ? (unsigned)atoi(getenv("FAKE_NVML_UTIL")) : 90) + card->index;
    found->memory = 11;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(device card, memory_v2 *found) {
    if (found->version != (sizeof(memory_v2) | 2u << 24)) return WRONG_VERSION;
    found->total = 24576ull << 20;
    found->reserved = 512ull << 20;
    found->used = ((getenv("FAKE_NVML_USED") ? strtoull(getenv("FAKE_NVML_USED"), NULL, 10) : 20000) + card->index) << 20;
    found->free = found->total - found->reserved - found->used;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device card, int kind, unsigned *mhz) {
    *mhz = kind == 1 ? 1800 : 9999;
    return SUCCESS;
}

int nvmlDeviceGetMaxClockInfo(device card, int kind, unsigned *mhz) {
    *mhz = kind == 1 ? 2040 : 9999;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(device card, unsigned *milliwatts) {
    if (card->index == 1) return NOT_SUPPORTED;
    *milliwatts = 71234;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(device card, unsigned *milliwatts) {
    if (card->index == 1) return NOT_SUPPORTED;
    *milliwatts = 72000;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(device card, int sensor, unsigned *celsius) {
    if (sensor != 0) return INVALID_ARGUMENT;
    *celsius = 71 + card->index;
    return SUCCESS;
}

/* Only the older name: drivers before 535 have no other. */
int nvmlDeviceGetCurrentClocksThrottleReasons(device card, unsigned long long *mask) {
    *mask = card->index ? 0x4 : 0x40;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(device card, int kind, int counter, unsigned long long *found) {
    if (kind != 1 || counter != 0) return INVALID_ARGUMENT;
    if (card->index == 1) return NOT_SUPPORTED;
    *found = 0;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) {
    *set = &event_set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(device card, unsigned long long types, void *set) {
    if (types != 8 || set != &event_set) return INVALID_ARGUMENT;
    watched = card;
    return SUCCESS;
}

/* Two errors of the last card that was registered, the second one after the others were read. */
int nvmlEventSetWait_v2(void *set, event_data *found, unsigned milliseconds) {
    static const unsigned long long codes[] = {13, 0, 79};
    if (set != &event_set || milliseconds) return INVALID_ARGUMENT;
    if (getenv("FAKE_NVML_QUIET")) return TIMEOUT;
    if (told >= 3 || !codes[told]) {
        told += told < 3;
        return TIMEOUT;
    }
    found->card = watched;
    found->type = 8;
    found->data = codes[told++];
    found->gpu_instance = found->compute_instance = 0xffffffff;
    return SUCCESS;
}
