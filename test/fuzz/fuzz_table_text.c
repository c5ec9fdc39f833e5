/* fuzz_table_text.c - any bytes as a table's text. What is read as rows is what
 * the first line says, finite, and no more than the file can hold. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet/table/table_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[64];

static void remove_file(void)
{
    unlink(path);
}

static void write_file(const void *data, size_t size)
{
    FILE *f;

    if (!*path) {
        int fd;

        strcpy(path, access("/dev/shm", W_OK) ? "/tmp/fuzz-text.XXXXXX"
                                              : "/dev/shm/fuzz-text.XXXXXX");
        fd = mkstemp(path);
        if (fd < 0)
            abort();
        close(fd);
        atexit(remove_file);
    }
    f = fopen(path, "wb");
    if (!f || (size && fwrite(data, 1, size, f) != size) || fclose(f))
        abort();
}

static fleet_status count(void *arg, const fl_table_text_head *h,
                          const fl_table_text_row *row)
{
    int64_t *n = arg;

    for (int64_t i = 0; row && i < fl_table_text_width(h); i++)
        if (!isfinite(row->values[i]))
            abort();
    if (row && ++*n > h->rows)
        abort();
    return FLEET_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n = 0;

    write_file(data, size);
    if (fl_table_text_read(path, count, &n) == FLEET_OK && n > (int64_t)size)
        abort();
    return 0;
}
