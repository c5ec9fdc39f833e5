/* data_files.h - files of each format for the benchmarks of whole passes,
 * and such a pass. */
#pragma once

#include <unistd.h>

#include "base/crc32c.h"
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

static inline char *bench_varint(char *to, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        *to++ = (char)(x | 128);
    *to++ = (char)x;
    return to;
}

static inline char *bench_bytes(char *to, int number, const void *bytes,
                                size_t n)
{
    to = bench_varint(to, (uint64_t)number << 3 | 2);
    to = bench_varint(to, n);
    memcpy(to, bytes, n);
    return to + n;
}

/* A feature: a list of that kind, 2 floats, 3 integers, whose values are
 * packed. */
static inline char *bench_feature(char *to, const char *name, int kind,
                                  const void *packed, size_t n)
{
    char list[200], feature[220], entry[260];
    char *end = bench_bytes(list, 1, packed, n);

    end = bench_bytes(feature, kind, list, (size_t)(end - list));
    n = (size_t)(end - feature);
    end = bench_bytes(entry, 1, name, strlen(name));
    end = bench_bytes(end, 2, feature, n);
    return bench_bytes(to, 1, entry, (size_t)(end - entry));
}

static inline char *bench_record(char *to, const char *features, size_t n)
{
    char *data = to + 12, *end = bench_bytes(data, 1, features, n);
    const uint64_t size = (uint64_t)(end - data);
    uint32_t sum = fl_crc32c_masked(&size, 8);

    memcpy(to, &size, 8);
    memcpy(to + 8, &sum, 4);
    sum = fl_crc32c_masked(data, size);
    memcpy(end, &sum, 4);
    return end + 4;
}

/* The lines of bench_multislot(), as records of tf.Example. */
static inline bench_text bench_tfrecord(void)
{
    bench_text t = bench_new_text((size_t)BENCH_RECORDS * 700);
    uint64_t state = 2;

    for (int i = 0; i < BENCH_RECORDS; i++) {
        const float label = next_random(&state) % 4 == 0;
        float dense[BENCH_DENSE];
        char features[1000], name[8], id[12], *end = features;

        end = bench_feature(end, "label", 2, &label, sizeof label);
        for (int c = 0; c < BENCH_DENSE; c++)
            dense[c] = (float)((double)(next_random(&state) >> 11) * 0x1p-53);
        end = bench_feature(end, "dense_input", 2, dense, sizeof dense);
        for (int c = 0; c < BENCH_IDS; c++) {
            const char *stop = bench_varint(id, next_random(&state) % 1000000);

            snprintf(name, sizeof name, "%d", c + 1);
            end = bench_feature(end, name, 3, id, (size_t)(stop - id));
        }
        t.end = bench_record(t.end, features, (size_t)(end - features));
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
