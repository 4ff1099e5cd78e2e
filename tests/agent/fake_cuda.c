/* libcuda as far as the agent asks it. The file FAKE_CUDA names holds what cuInit says, one number a line: the first
 * line is used up by a call, the last one stays. "hang" hangs, "crash" crashes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuDriverGetVersion(int *version) {
    *version = 12020;
    return 0;
}

int cuInit(unsigned int flags) {
    char text[256] = {0};
    FILE *file = fopen(getenv("FAKE_CUDA"), "r");
    if (flags || !file) return 1;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    char *rest = strchr(text, '\n');
    if (rest && rest[1]) {
        file = fopen(getenv("FAKE_CUDA"), "w");
        fputs(rest + 1, file);
        fclose(file);
    }
    if (!strncmp(text, "hang", 4)) sleep(600);
    if (!strncmp(text, "crash", 5)) abort();
    return atoi(text);
}
