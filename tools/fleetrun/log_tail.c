/* log_tail.c - read the end of a log, and show its last lines. */
#define _GNU_SOURCE
#include "log_tail.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TAIL_LINES = 20, TAIL_BYTES = 16 << 10 };

/* Read up to `size` bytes of the file's end; the number read. */
static size_t read_end(const char *path, char *bytes, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t n = 0;

    if (fd < 0)
        return 0;
    if (fstat(fd, &st) == 0)
        n = pread(fd, bytes, size,
                  st.st_size > (off_t)size ? st.st_size - (off_t)size : 0);
    close(fd);
    return n > 0 ? (size_t)n : 0;
}

void run_log_tail_show(const char *heading, const char *path)
{
    char bytes[TAIL_BYTES];
    size_t n = read_end(path, bytes, sizeof bytes), at;
    int lines = 0;

    if (n == 0) {
        dprintf(2, "%s; %s is empty\n", heading, path);
        return;
    }
    n -= bytes[n - 1] == '\n';
    for (at = n; at > 0; at--)
        if (bytes[at - 1] == '\n' && ++lines == TAIL_LINES)
            break;
    dprintf(2, "%s; %s ends with:\n%.*s\n", heading, path, (int)(n - at),
            bytes + at);
}
