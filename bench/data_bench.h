/* data_bench.h - what the benchmarks of the data pipeline share: records that
 * are the same on every machine, a clock, batches parsed from memory, and the
 * line that is printed. */
#pragma once

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "data/format/formats.h"
#include "data/parse/parser.h"

enum { BENCH_RECORDS = 300000, BENCH_IDS = 26, BENCH_DENSE = 13 };

static inline void bench_must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, fleet_last_error());
    exit(1);
}

/* A text with room around it for those who read it many bytes at a time. */
typedef struct bench_text {
    char *memory, *text, *end;
} bench_text;

static inline bench_text bench_new_text(size_t most)
{
    bench_text t = {.memory = calloc(1, most + 2 * FL_TEXT_PAD)};

    bench_must(t.memory != NULL, "calloc");
    t.text = t.end = t.memory + FL_TEXT_PAD;
    return t;
}

/* Criteo's lines: each integer of 1 to 4 digits and sometimes negative, texts
 * of eight hex digits; of 1000 cells `missing` are empty. */
static inline bench_text bench_criteo(unsigned missing)
{
    bench_text t = bench_new_text((size_t)BENCH_RECORDS * 400);
    uint64_t state = 1;

    for (int i = 0; i < BENCH_RECORDS; i++) {
        t.end += sprintf(t.end, "%d", (int)(next_random(&state) % 4 == 0));
        for (int c = 0; c < BENCH_DENSE + BENCH_IDS; c++) {
            static const int below[] = {10, 100, 1000, 10000};
            uint64_t r = next_random(&state);

            *t.end++ = '\t';
            if (r % 1000 < missing)
                continue;
            r /= 1000;
            if (c >= BENCH_DENSE)
                t.end += sprintf(t.end, "%08" PRIx32, (uint32_t)r);
            else if (c == 1 && r % 10 == 0)
                t.end += sprintf(t.end, "-1");
            else
                t.end += sprintf(t.end, "%d",
                                 (int)(r / 10 % 1000000) % below[r % 4]);
        }
        *t.end++ = '\n';
    }
    return t;
}

/* MultiSlot lines: a label, 13 floats of six digits, 26 slots of one id each
 * below a million. */
static inline bench_text bench_multislot(void)
{
    bench_text t = bench_new_text((size_t)BENCH_RECORDS * 500);
    uint64_t state = 2;

    for (int i = 0; i < BENCH_RECORDS; i++) {
        t.end += sprintf(t.end, "1 %d %d", (int)(next_random(&state) % 4 == 0),
                         BENCH_DENSE);
        for (int c = 0; c < BENCH_DENSE; c++)
            t.end += sprintf(t.end, " %.6g",
                             (double)(next_random(&state) >> 11) * 0x1p-53);
        for (int c = 0; c < BENCH_IDS; c++)
            t.end +=
                sprintf(t.end, " 1 %d", (int)(next_random(&state) % 1000000));
        *t.end++ = '\n';
    }
    return t;
}

/* A parser of our own, its slots: label, 13 floats, 26 ids. */
typedef struct bench_parser {
    fl_stream_spec spec;
    fleet_slot slot[2 + BENCH_IDS];
    char name[BENCH_IDS][8];
    fl_parser parser;
    fl_scratch *scratch;
    fl_batch_buffer *box;
    size_t line_capacity;
} bench_parser;

static const char *const bench_file[] = {"memory"};

static inline void bench_open(bench_parser *b, fleet_format format)
{
    memset(b, 0, sizeof *b);
    b->slot[0] = (fleet_slot){.name = "label",
                              .dtype = format == FLEET_CRITEO ? FLEET_INT64
                                                              : FLEET_FLOAT32};
    b->slot[1] = (fleet_slot){.name = "dense_input", .dim = BENCH_DENSE};
    for (int i = 0; i < BENCH_IDS; i++) {
        snprintf(b->name[i], sizeof b->name[i], "%d", i + 1);
        b->slot[2 + i] = (fleet_slot){.name = b->name[i], .dtype = FLEET_INT64};
    }
    b->spec = (fl_stream_spec){.format = format,
                               .slots = b->slot,
                               .n_slot = 2 + BENCH_IDS,
                               .files = bench_file,
                               .n_file = 1};
    bench_must(fl_parser_init(&b->parser, &b->spec, fl_format_parse(format)) ==
                       FLEET_OK &&
                   fl_scratch_create(&b->scratch, &b->parser) == FLEET_OK &&
                   fl_batch_buffer_create(&b->box, &b->parser.layout) ==
                       FLEET_OK,
               "parser");
}

static inline void bench_close(bench_parser *b)
{
    free(b->box->lines.line);
    b->box->lines = (fl_lines){0};
    fl_batch_buffer_destroy(b->box, &b->parser.layout, NULL);
    fl_scratch_destroy(b->scratch);
    fl_parser_done(&b->parser);
}

/* The next n lines of [text, end), parsed into the box; where they end. */
static inline const char *bench_parse(bench_parser *b, const char *text,
                                      const char *end, size_t n)
{
    fl_lines *lines = &b->box->lines;

    if (b->line_capacity < n) {
        lines->line = realloc(lines->line, n * sizeof *lines->line);
        b->line_capacity = n;
    }
    for (lines->n = 0; lines->n < n && text < end; lines->n++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));

        lines->line[lines->n] =
            (fl_line){.text = text, .size = (uint32_t)(newline - text)};
        text = newline + 1;
    }
    bench_must(b->parser.parse(&b->parser, b->scratch, b->box) == FLEET_OK,
               "parse");
    return text;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static inline double bench_median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof *x, bench_compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Seconds of ours and of the peer, round by round, for `amount` units. */
static inline void bench_print(const char *id, double floor, double goal,
                               const char *unit, const char *peer_name,
                               double amount, double *ours, double *peer,
                               int rounds)
{
    double ratio[64];

    for (int i = 0; i < rounds; i++)
        ratio[i] = peer[i] / ours[i];
    printf("{\"id\":\"%s\",\"ratio\":%.2f,\"floor\":%g,\"goal\":%g,"
           "\"ours\":%.6g,\"peer\":%.6g,\"unit\":\"%s\",\"peer_name\":\"%s\","
           "\"rounds\":%d}\n",
           id, bench_median(ratio, rounds), floor, goal,
           amount / bench_median(ours, rounds),
           amount / bench_median(peer, rounds), unit, peer_name, rounds);
    fflush(stdout);
}
