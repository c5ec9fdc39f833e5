/* fuzz_data.h - what the fuzzers of src/data share: text with room around it,
 * parsed by every table of kernels, which must agree. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/parse/parser.h"
#include "data/stream_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, fleet_last_error());
    abort();
}

/* The bytes with FL_TEXT_PAD of others around them; the first of them. */
static inline char *fuzz_pad(const void *data, size_t size)
{
    char *memory = malloc(size + 2 * FL_TEXT_PAD);

    fuzz_must(memory != NULL, "malloc");
    memset(memory, '3', size + 2 * FL_TEXT_PAD);
    if (size > 0)
        memcpy(memory + FL_TEXT_PAD, data, size);
    return memory + FL_TEXT_PAD;
}

static inline void fuzz_unpad(char *text)
{
    free(text - FL_TEXT_PAD);
}

/* Lines as a reader gives them. */
static inline void fuzz_lines(fl_lines *l, const char *text, size_t size)
{
    const char *end = text + size;

    for (int64_t number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;
        size_t n = (size_t)(stop - text), blank = 0;

        n -= n > 0 && text[n - 1] == '\r';
        while (blank < n &&
               (text[blank] == ' ' || (text[blank] >= 9 && text[blank] <= 13)))
            blank++;
        if (blank < n) {
            fuzz_must(fl_grow(&l->line, &l->capacity, l->n + 1,
                              sizeof *l->line) == FLEET_OK,
                      "lines");
            l->line[l->n++] =
                (fl_line){.text = text, .size = (uint32_t)n, .number = number};
        }
        text = stop + 1;
    }
}

/* What a parse came to. */
typedef struct fuzz_result {
    fleet_status status;
    uint64_t hash; /* of all values and offsets */
    char error[1000];
} fuzz_result;

static inline uint64_t fuzz_mix(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static inline uint64_t fuzz_hash_box(const fl_batch_buffer *box,
                                     const fl_layout *l)
{
    const int64_t rows = box->batch.rows;
    uint64_t h = fuzz_mix(14695981039346656037u, &rows, sizeof rows);

    for (int i = 0; i < l->n_field; i++) {
        const fl_field *f = &l->field[i];
        const fl_slot_data *s = &box->batch.slot[i];
        int64_t n = f->dim < 0 ? s->offsets[rows] : rows * f->dim;

        for (int64_t r = 0; f->dim < 0 && r < rows; r++)
            fuzz_must(s->offsets[r] <= s->offsets[r + 1], "offsets fall");
        h = fuzz_mix(h, s->values, (size_t)n * (f->is_id ? 8 : 4));
        if (f->dim < 0)
            h = fuzz_mix(h, s->offsets, (size_t)(rows + 1) * 8);
        if (f->weighted)
            h = fuzz_mix(h, s->weights, (size_t)n * 4);
    }
    return h;
}

/* Parse text[0, size) with each table of kernels; all must agree. prepare may
 * be NULL, or read a header from the first line, which it then takes away. */
static inline void fuzz_parse(
    const fl_stream_spec *spec, fl_parse *parse, const char *text, size_t size,
    fleet_status (*prepare)(fl_parser *p, fl_scratch *s, fl_lines *l))
{
    fuzz_result first = {0};

    for (int k = 0; fl_kernels_at(k); k++) {
        fuzz_result r = {0};
        fl_parser p;
        fl_scratch *scratch = NULL;
        fl_batch_buffer *box = NULL;

        fuzz_must(fl_parser_init(&p, spec, parse) == FLEET_OK &&
                      fl_scratch_create(&scratch, &p) == FLEET_OK &&
                      fl_batch_buffer_create(&box, &p.layout) == FLEET_OK,
                  "parser");
        p.kernels = fl_kernels_at(k);
        fuzz_lines(&box->lines, text, size);
        r.status = prepare ? prepare(&p, scratch, &box->lines) : FLEET_OK;
        if (r.status == FLEET_OK)
            r.status = p.parse(&p, scratch, box);
        if (r.status == FLEET_OK && parse != fl_parse_statistics)
            r.hash = fuzz_hash_box(box, &p.layout);
        else if (r.status != FLEET_OK)
            snprintf(r.error, sizeof r.error, "%s", fleet_last_error());
        if (k == 0)
            first = r;
        fuzz_must(r.status == FLEET_OK || r.status == FLEET_EFORMAT, "status");
        fuzz_must(r.status == first.status && r.hash == first.hash &&
                      strcmp(r.error, first.error) == 0,
                  p.kernels->isa);
        fl_free(box->lines.line);
        box->lines = (fl_lines){0};
        fl_batch_buffer_destroy(box, &p.layout, NULL);
        fl_scratch_destroy(scratch);
        fl_parser_done(&p);
    }
}

/* Lines whose values have names: the first byte picks the slots. */
static inline void fuzz_named(fleet_format format, fl_parse *parse,
                              const uint8_t *data, size_t size)
{
    static const fleet_slot slots[] = {
        {.name = "a", .required = 1},
        {.name = "b", .dtype = FLEET_INT64, .dim = -1},
        {.name = "c", .dim = 2},
        {.name = "d", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
        {.name = "a_longer_name", .dtype = FLEET_INT64},
        {.name = "e", .dim = -1}};
    static const char *const files[] = {"fuzz"};
    fl_stream_spec spec = {.format = format, .files = files, .n_file = 1};
    char *text;

    if (size == 0)
        return;
    spec.slots = slots + data[0] % 6;
    spec.n_slot = 1 + data[0] / 6 % (6 - data[0] % 6);
    text = fuzz_pad(data + 1, size - 1);
    fuzz_parse(&spec, parse, text, size - 1, NULL);
    fuzz_unpad(text);
}
