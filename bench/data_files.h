/* data_files.h - files of each text format for the benchmarks of whole passes,
 * and such a pass. */
#pragma once

#include <unistd.h>

#include "data/stream.h"
#include "data_bench.h"

enum { FILE_BATCH = 512 };

/* SVM-light's lines: 13 counts as numbers, 26 of a million indexes of value 1. */
static inline bench_text bench_libsvm(void)
{
    bench_text t = bench_new_text((size_t)BENCH_RECORDS * 700);
    uint64_t state = 3;

    for (int i = 0; i < BENCH_RECORDS; i++) {
        t.end += sprintf(t.end, "%d", (int)(next_random(&state) % 4 == 0));
        for (int c = 0; c < BENCH_DENSE; c++)
            t.end += sprintf(t.end, " %d:%.6g", c + 1,
                             (double)(next_random(&state) >> 11) * 0x1p-53);
        for (int c = 0; c < BENCH_IDS; c++)
            t.end +=
                sprintf(t.end, " %d:1",
                        14 + 40000 * c + (int)(next_random(&state) % 40000));
        *t.end++ = '\n';
    }
    return t;
}

/* The lines of bench_multislot(), by names. */
static inline bench_text bench_named(bool json)
{
    bench_text t = bench_new_text((size_t)BENCH_RECORDS * 900);
    uint64_t state = 2;

    for (int i = 0; i < BENCH_RECORDS; i++) {
        t.end += sprintf(t.end, json ? "{\"label\":%d" : "label:%d",
                         (int)(next_random(&state) % 4 == 0));
        for (int c = 0; c < BENCH_DENSE; c++)
            t.end += sprintf(t.end,
                             !json    ? " dense_input:%.6g"
                             : c == 0 ? ",\"dense_input\":[%.6g"
                                      : ",%.6g",
                             (double)(next_random(&state) >> 11) * 0x1p-53);
        if (json)
            *t.end++ = ']';
        for (int c = 0; c < BENCH_IDS; c++)
            t.end += sprintf(t.end, json ? ",\"%d\":%d" : " %d:%d", c + 1,
                             (int)(next_random(&state) % 1000000));
        t.end += sprintf(t.end, json ? "}\n" : "\n");
    }
    return t;
}

static inline void bench_write(char *path, const bench_text *t)
{
    const int fd = mkstemp(path);
    const size_t size = (size_t)(t->end - t->text);

    bench_must(fd >= 0, "mkstemp");
    for (size_t done = 0; done < size;) {
        const ssize_t n = write(fd, t->text + done, size - done);

        bench_must(n > 0, "write");
        done += (size_t)n;
    }
    close(fd);
}

/* Seconds of a pass of one reader thread over all lines. */
static inline double bench_pass(const fl_stream_spec *spec)
{
    double begin = now();
    fl_stream *stream = NULL;
    fl_batch *batch;
    int64_t rows = 0;

    bench_must(fl_stream_open(&stream, spec) == FLEET_OK, "open");
    while (fl_stream_next(stream, &batch) == FLEET_OK) {
        rows += batch->rows;
        fl_stream_release(stream, batch);
    }
    fl_stream_close(stream);
    bench_must(rows == BENCH_RECORDS, "some lines are missing");
    return now() - begin;
}
