/* parser.c - what the parsers of all formats share. */
#include "data/parse/parser.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { CLIP = 60 }; /* characters of the input that an error shows */

static fleet_status make_places(fl_parser *p)
{
    const size_t n = (size_t)p->spec->n_file;

    p->place = fl_alloc_array(n, sizeof *p->place);
    p->n_place = fl_alloc_array(n, sizeof *p->n_place);
    if (!p->place || !p->n_place)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        p->place[i] =
            fl_alloc_array((size_t)p->layout.n_column, sizeof **p->place);
        if (!p->place[i])
            return FLEET_ENOMEM;
    }
    return FLEET_OK;
}

fleet_status fl_parser_init(fl_parser *p, const fl_stream_spec *spec,
                            fl_parse *parse)
{
    fleet_status status;

    *p =
        (fl_parser){.spec = spec, .kernels = fl_kernels_best(), .parse = parse};
    for (int i = 0; i < 256; i++)
        p->pixel[i] = (float)i / 255.0f;
    status = fl_layout_init(&p->layout, spec);
    if (status == FLEET_OK && spec->format == FLEET_CSV)
        status = make_places(p);
    if (status == FLEET_OK && fl_slots_by_name(spec->format))
        status = fl_slot_names_init(&p->names, &p->layout);
    if (status != FLEET_OK)
        fl_parser_done(p);
    return status;
}

void fl_parser_done(fl_parser *p)
{
    for (int i = 0; p->place && i < p->spec->n_file; i++)
        fl_free(p->place[i]);
    fl_free(p->place);
    fl_free(p->n_place);
    fl_slot_names_done(&p->names);
    fl_layout_done(&p->layout);
    *p = (fl_parser){0};
}

fleet_status fl_scratch_create(fl_scratch **scratch, const fl_parser *p)
{
    fl_scratch *s;

    FL_TRY(FL_NEW(&s, sizeof *s));
    s->used = fl_alloc_array((size_t)p->layout.n_field, sizeof *s->used);
    s->seen = fl_alloc_array((size_t)p->layout.n_field, sizeof *s->seen);
    if (!s->used || !s->seen) {
        fl_scratch_destroy(s);
        return FLEET_ENOMEM;
    }
    *scratch = s;
    return FLEET_OK;
}

void fl_scratch_destroy(fl_scratch *s)
{
    if (!s)
        return;
    fl_csv_cells_done(&s->cells);
    fl_free(s->labelled);
    fl_free(s->used);
    fl_free(s->seen);
    fl_free(s->text);
    fl_free(s->row);
    fl_free(s);
}

/* --- bounds --------------------------------------------------------------- */

/* Which row of the batch value i of a slot is in. */
static int64_t row_of(const fl_batch *b, const fl_field *f,
                      const fl_slot_data *s, int64_t i)
{
    int64_t row = 0;

    if (f->dim >= 0)
        return i / f->dim;
    while (row + 1 < b->rows && s->offsets[row + 1] <= i)
        row++;
    return row;
}

static int64_t count_of(const fl_field *f, const fl_batch *b, int slot)
{
    return f->dim < 0 ? b->slot[slot].offsets[b->rows] : b->rows * f->dim;
}

/* Value i of the slot is none of what is expected. */
static fleet_status refuse_value(const fl_parser *p, const fl_batch_buffer *b,
                                 int slot, int64_t i, const char *what)
{
    const fl_field *f = &p->layout.field[slot];
    const fl_slot_data *s = &b->batch.slot[slot];
    char text[32];

    if (f->is_id)
        snprintf(text, sizeof text, "%" PRIu64,
                 ((const uint64_t *)s->values)[i]);
    else
        snprintf(text, sizeof text, "%g",
                 (double)((const float *)s->values)[i]);
    return fl_bad_line(p, &b->lines.line[row_of(&b->batch, f, s, i)], f->name,
                       what, text, text + strlen(text));
}

static fleet_status check_ids(const fl_parser *p, const fl_batch_buffer *b,
                              int slot)
{
    const fl_field *f = &p->layout.field[slot];
    const uint64_t *id = b->batch.slot[slot].values;
    const int64_t n = count_of(f, &b->batch, slot);
    char what[80];

    for (int64_t i = 0; i < n; i++) {
        if (id[i] < (uint64_t)f->bounds.ids_below)
            continue;
        snprintf(what, sizeof what, "an id below %" PRId64,
                 f->bounds.ids_below);
        return refuse_value(p, b, slot, i, what);
    }
    return FLEET_OK;
}

static fleet_status check_labels(const fl_parser *p, const fl_batch_buffer *b,
                                 int slot)
{
    const fl_field *f = &p->layout.field[slot];
    const void *values = b->batch.slot[slot].values;
    const int64_t n = count_of(f, &b->batch, slot), to = f->bounds.labels_to;
    char what[80];

    for (int64_t i = 0; i < n; i++) {
        const float x = f->is_id ? 0 : ((const float *)values)[i];

        if (f->is_id ? ((const uint64_t *)values)[i] <= (uint64_t)to
                     : x >= 0 && x <= (float)to)
            continue;
        snprintf(what, sizeof what, "a label from 0 to %" PRId64, to);
        return refuse_value(p, b, slot, i, what);
    }
    return FLEET_OK;
}

fleet_status fl_parser_check_bounds(const fl_parser *p,
                                    const fl_batch_buffer *buffer)
{
    if (buffer->lines.n != (size_t)buffer->batch.rows)
        return FLEET_OK;
    for (int i = 0; i < p->layout.n_field + p->layout.n_made; i++) {
        const fl_field *f = &p->layout.field[i];

        if (f->bounds.ids_below > 0 && f->is_id)
            FL_TRY(check_ids(p, buffer, i));
        if (f->bounds.labels_to > 0)
            FL_TRY(check_labels(p, buffer, i));
    }
    return FLEET_OK;
}

bool fl_cut_weight(const char *s, const char *end, const char **colon,
                   float *weight)
{
    const char *at = end;

    *weight = 1.0f;
    *colon = end;
    while (at > s && at[-1] != ':')
        at--;
    if (at == s)
        return true;
    *colon = at - 1;
    return fl_parse_float_any(at, end, weight);
}

/* --- what is refused ------------------------------------------------------ */

/* A piece of the line as it may stand in an error's text. */
static const char *clip_text(char out[CLIP + 8], const fl_parser *p,
                             const fl_line *line, const char *text,
                             const char *end)
{
    int n = 0;

    if (!text)
        return "the end of the line";
    if (p->spec->format == FLEET_TFRECORD && text == line->text)
        return "another record";
    out[n++] = '"';
    for (; text < end && n < CLIP; text++)
        out[n++] = (unsigned char)*text < ' ' || *text == 127 ? '?' : *text;
    strcpy(out + n, text < end ? "...\"" : "\"");
    return out;
}

fleet_status fl_bad_line(const fl_parser *p, const fl_line *line,
                         const char *slot, const char *what, const char *text,
                         const char *end)
{
    const bool piped = fl_command_of(p->spec) != NULL;
    char got[CLIP + 8];

    return fl_fail(FLEET_EFORMAT,
                   "%.500s:%" PRId64 "%s: %s%.100s%sexpected %s, got %s",
                   p->spec->files[line->file], line->number,
                   piped ? " of pipe_command's output" : "",
                   slot ? "slot \"" : "", slot ? slot : "", slot ? "\": " : "",
                   what, clip_text(got, p, line, text, end));
}
