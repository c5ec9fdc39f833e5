/* data_kit.c - see data_kit.h. */
#define _GNU_SOURCE
#define SUITE data_kit
#include "data_kit.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <zlib.h>

#include "base/memory.h"

uint64_t data_random(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;

    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

fl_stream_spec data_spec(fleet_format format, const fleet_slot *slots,
                         int n_slot, const char *const *files, int n_file)
{
    return (fl_stream_spec){.format = format,
                            .slots = slots,
                            .n_slot = n_slot,
                            .batch_size = 2,
                            .n_thread = 1,
                            .files = files,
                            .n_file = n_file,
                            .share_count = 1};
}

static void put(data_dump *d, const void *data, size_t size)
{
    if (d->size + size > d->capacity) {
        d->capacity = 2 * (d->size + size);
        d->bytes = realloc(d->bytes, d->capacity);
        CHECK(d->bytes != NULL);
    }
    memcpy(d->bytes + d->size, data, size);
    d->size += size;
}

static void put_batch(data_dump *d, const fl_stream_spec *spec,
                      const fl_batch *b)
{
    put(d, &b->index, sizeof b->index);
    put(d, &b->rows, sizeof b->rows);
    for (int i = 0; i < spec->n_slot; i++) {
        const fleet_slot *s = &spec->slots[i];
        size_t size = s->dtype == FLEET_INT64 ? 8 : 4;
        int64_t dim = s->dim ? s->dim : 1;
        int64_t n = dim < 0 ? b->slot[i].offsets[b->rows] : b->rows * dim;

        CHECK((dim < 0) == (b->slot[i].offsets != NULL));
        put(d, b->slot[i].values, (size_t)n * size);
        if (dim < 0)
            put(d, b->slot[i].offsets, (size_t)(b->rows + 1) * 8);
        CHECK(!s->weighted == !b->slot[i].weights);
        if (s->weighted)
            put(d, b->slot[i].weights, (size_t)n * 4);
    }
    d->batches++;
    d->rows += b->rows;
}

/* A dump that a test does not free stays known, so it is no leak. */
static void keep(const data_dump *d)
{
    static const char *volatile all[1 << 14];
    static size_t n;

    all[n++ % (sizeof all / sizeof *all)] = d->bytes;
}

data_dump data_read(const fl_stream_spec *spec)
{
    data_dump d = {0};
    fl_stream *s = NULL;
    fl_batch *b;

    d.status = fl_stream_open(&s, spec);
    if (d.status == FLEET_OK) {
        while ((d.status = fl_stream_next(s, &b)) == FLEET_OK) {
            put_batch(&d, spec, b);
            fl_stream_release(s, b);
        }
        CHECK_STATUS(fl_stream_next(s, &b), d.status);
    }
    snprintf(d.error, sizeof d.error, "%s", fleet_last_error());
    fl_stream_close(s);
    keep(&d);
    return d;
}

data_dump data_read_n(fl_stream_spec spec, int n_thread)
{
    spec.n_thread = n_thread;
    return data_read(&spec);
}

void data_check_memory(const fl_stream_spec *spec, int64_t rows)
{
    const int fds = data_open_fds();
    fleet_status status = FLEET_ENOMEM;

    for (int n = 1; status == FLEET_ENOMEM; n++) {
        data_dump d;

        fl_memory_fail_at(n, n % 2);
        d = data_read(spec);
        fl_memory_fail_at(0, false);
        status = d.status;
        if (status == FLEET_EEND)
            CHECK(n > 10 && d.rows == rows);
        else
            CHECK_STATUS(status, FLEET_ENOMEM);
        free(d.bytes);
        CHECK_INT(data_open_fds(), fds);
    }
}

bool data_same(const data_dump *a, const data_dump *b)
{
    return a->status == b->status && a->size == b->size && a->rows == b->rows &&
           strcmp(a->error, b->error) == 0 &&
           (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

static fl_stream *kept;

static void close_kept(void)
{
    fl_stream_close(kept);
    kept = NULL;
}

const fl_batch *data_first(const fl_stream_spec *spec)
{
    static bool at_exit;
    fl_batch *b = NULL;

    if (!at_exit)
        atexit(close_kept);
    at_exit = true;
    close_kept();
    CHECK_OK(fl_stream_open(&kept, spec));
    CHECK_OK(fl_stream_next(kept, &b));
    return b;
}

void data_fails(const char *file, int line, const fl_stream_spec *spec,
                fleet_status want, const char *const *words)
{
    data_dump d = data_read(spec);

    check_status(file, line, "reading", d.status, want);
    for (; *words; words++)
        check_contains(file, line, d.error, *words);
    free(d.bytes);
}

const char *data_gz(const char *name, const void *data, size_t size)
{
    uLong bound = compressBound(size) + 100;
    unsigned char *packed = malloc(bound);
    z_stream z = {.next_in = (Bytef *)data,
                  .avail_in = (uInt)size,
                  .next_out = packed,
                  .avail_out = (uInt)bound};
    const char *path;

    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8,
                       Z_DEFAULT_STRATEGY) == Z_OK);
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    path = test_file_bytes(name, packed, z.total_out);
    deflateEnd(&z);
    free(packed);
    return path;
}

int data_open_fds(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    CHECK(dir != NULL);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

int data_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}
