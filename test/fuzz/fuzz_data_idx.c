/* fuzz_data_idx.c - idx files: the first two bytes say how long the labels are,
 * the labels follow, the rest is the images. */
#define _GNU_SOURCE
#include "data/format/formats.h"
#include "fuzz_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/stream.h"

static void put(int *fd, char path[64], const void *data, size_t size)
{
    if (*fd <= 0)
        *fd = memfd_create("fuzz", MFD_CLOEXEC);
    snprintf(path, 64, "/proc/self/fd/%d", *fd);
    fuzz_must(ftruncate(*fd, 0) == 0 &&
                  pwrite(*fd, data, size, 0) == (ssize_t)size,
              "write");
}

static void read_all(const fl_stream_spec *spec)
{
    fleet_status status;
    fl_stream *s;
    fl_batch *b;
    int64_t rows = 0;

    status = fl_stream_open(&s, spec);
    if (status == FLEET_OK) {
        while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
            const float *x = b->slot[0].values;

            rows += b->rows;
            fuzz_must(x[b->rows * spec->slots[0].dim - 1] <= 1.0f, "pixel");
            fl_stream_release(s, b);
        }
        fl_stream_close(s);
    }
    fuzz_must(status == FLEET_EEND || status == FLEET_EFORMAT ||
                  status == FLEET_ECORRUPT,
              "status");
    fuzz_must(status != FLEET_EEND || rows > 0, "rows");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd[2];
    static char path[2][64];
    const char *const files[] = {path[0], path[1]};
    fl_stream_spec spec = {.format = FLEET_IDX,
                           .batch_size = 3,
                           .n_thread = 1,
                           .files = files,
                           .n_file = 2,
                           .share_count = 1};
    size_t n;

    if (size < 2)
        return 0;
    n = data[0] + 256u * data[1];
    n = n < size - 2 ? n : size - 2;
    put(&fd[1], path[1], data + 2, n);
    put(&fd[0], path[0], data + 2 + n, size - 2 - n);
    if (fl_format_own_slots(FLEET_IDX, path[0], &spec.slots, &spec.n_slot) !=
        FLEET_OK)
        return 0;
    read_all(&spec);
    spec.n_thread = 2;
    spec.shuffle = 2;
    read_all(&spec);
    fl_format_free_own_slots(spec.slots);
    return 0;
}
