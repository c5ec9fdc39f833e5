/* fuzz_data_gz.c - packed files: whatever they hold, they are unpacked or
 * refused. */
#define _GNU_SOURCE
#include "fuzz_data.h"

#include <fcntl.h>
#include <unistd.h>

#include "data/io/unpack.h"

enum { MOST = 16 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char path[] = "/tmp/fleet-fuzz-XXXXXX.gz", out[1 << 16];
    static int fd = -1;
    fleet_status status;
    fl_unpack *u;
    size_t got = 1, all = 0;

    if (fd < 0)
        fd = mkstemps(path, 3);
    fuzz_must(fd >= 0 && ftruncate(fd, 0) == 0 &&
                  pwrite(fd, data, size, 0) == (ssize_t)size,
              path);
    fuzz_must(fl_unpack_open(&u, path) == FLEET_OK, "open");
    do {
        status = fl_unpack_read(u, out, 1 + (all * 7919) % sizeof out, &got);
        all += got;
    } while (status == FLEET_OK && got > 0 && all < MOST);
    fuzz_must(status == FLEET_OK || status == FLEET_ECORRUPT, "status");
    fl_unpack_close(u);
    return 0;
}
