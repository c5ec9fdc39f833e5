/* libsvm.c - a label, perhaps qid:QUERY, then tokens INDEX:VALUE up to the end
 * of the line, or to a token that begins with '#'.
 *
 * Which slot is which is checked with the spec (layout/check_libsvm.c): the
 * label if the lines have one, then "qid" if they have it, then the features.
 */
#include "data/format/libsvm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/layout/libsvm_slots.h"
#include "data/text/line_tokens.h"

typedef struct row {
    const fl_parser *p;
    const fl_line *line;
    fl_line_tokens t;
    fl_batch_buffer *buffer;
    size_t *used; /* ids in the features */
    int label, qid, features;
    size_t index; /* of the row */
} row;

static fleet_status refuse_slot(const row *r, int slot, const char *what,
                                const char *s, const char *end)
{
    return fl_bad_line(r->p, r->line, r->p->layout.field[slot].name, what, s,
                       end);
}

/* The next token; false: the line has ended, or what is left is a comment. */
static bool next_token(row *r, const char **s, const char **end)
{
    int token;

    *s = *end = NULL;
    if (!fl_line_tokens_next(&r->t, &token))
        return false;
    *s = fl_token_begin(&r->t, token);
    *end = fl_token_end(&r->t, token);
    if (**s != '#')
        return true;
    *s = *end = NULL;
    r->t.i = r->t.n; /* so that no token is left */
    r->t.rest = r->t.end + 1;
    return false;
}

/* A class: -1 and 1 are written where 0 and 1 are meant. */
static bool read_class(const char *s, const char *end, uint64_t *out)
{
    double x;

    if (fl_parse_u64(s, end, out))
        return true;
    if (!fl_parse_double(s, end, &x) || x != floor(x) || x < -1 || x > 0x1p53)
        return false;
    *out = x > 0 ? (uint64_t)x : 0;
    return true;
}

static fleet_status read_label(row *r)
{
    const fl_field *f = &r->p->layout.field[r->label];
    void *values = r->buffer->batch.slot[r->label].values;
    const char *s, *end;

    next_token(r, &s, &end);
    if (f->is_id)
        return s && read_class(s, end, (uint64_t *)values + r->index)
                   ? FLEET_OK
                   : refuse_slot(
                         r, r->label,
                         "a class (an integer from 0, or -1, which reads "
                         "as 0)",
                         s, end);
    return s && fl_parse_float(s, end, (float *)values + r->index)
               ? FLEET_OK
               : refuse_slot(r, r->label, "a finite number", s, end);
}

static bool is_qid(const char *s, const char *end)
{
    return end - s >= 4 && memcmp(s, "qid:", 4) == 0;
}

static fleet_status read_qid(row *r)
{
    uint64_t *values = r->buffer->batch.slot[r->qid].values;
    const char *s, *end;

    if (next_token(r, &s, &end) && is_qid(s, end) &&
        fl_parse_u64(s + 4, end, &values[r->index]))
        return FLEET_OK;
    return refuse_slot(r, r->qid, "qid: and an integer from 0 to 2^64 - 1", s,
                       end);
}

static fleet_status refuse_feature(const row *r, const char *s, const char *end)
{
    return refuse_slot(r, r->features,
                       is_qid(s, end)
                           ? "index:value (a slot \"qid\" in front of this one "
                             "takes a qid)"
                           : "index:value, an integer and a finite number",
                       s, end);
}

/* --- features ------------------------------------------------------------- */

static fleet_status add_id(row *r, uint64_t id, float value, const char *s,
                           const char *end)
{
    const fl_field *f = &r->p->layout.field[r->features];
    fl_slot_data *out = &r->buffer->batch.slot[r->features];
    const size_t at = (*r->used)++;

    if (at >= r->buffer->capacity[r->features])
        FL_TRY(fl_batch_buffer_room(r->buffer, &r->p->layout, r->features,
                                    at + 1));
    ((uint64_t *)out->values)[at] = id;
    if (f->weighted)
        out->weights[at] = value;
    else if (value != 1.0f)
        return refuse_slot(r, r->features,
                           "the value 1 (one that is weighted takes others)", s,
                           end);
    return FLEET_OK;
}

static fleet_status refuse_index(const row *r, uint64_t after, const char *s,
                                 const char *end)
{
    const int64_t dim = r->p->layout.field[r->features].dim;
    char what[100];

    snprintf(what, sizeof what,
             "an index below %lld, its dim, and above the one before it "
             "(from %llu on)",
             (long long)dim, (unsigned long long)after);
    return refuse_slot(r, r->features, what, s, end);
}

static fleet_status read_features(row *r)
{
    const int64_t dim = r->p->layout.field[r->features].dim;
    fl_slot_data *out = &r->buffer->batch.slot[r->features];
    float *dense =
        (float *)out->values + r->index * (size_t)(dim > 0 ? dim : 0);
    uint64_t index, least = 0;
    const char *s, *end;
    float value;

    if (dim > 0)
        memset(dense, 0, (size_t)dim * sizeof *dense);
    while (next_token(r, &s, &end)) {
        const char *colon = fl_find_colon(s, end);

        if (colon == end || !fl_parse_u64(s, colon, &index) ||
            !fl_parse_float(colon + 1, end, &value))
            return refuse_feature(r, s, end);
        if (dim < 0) {
            FL_TRY(add_id(r, index, value, s, end));
            continue;
        }
        if (index < least || index >= (uint64_t)dim)
            return refuse_index(r, least, s, end);
        dense[index] = value;
        least = index + 1;
    }
    if (dim < 0)
        out->offsets[r->index + 1] = (int64_t)*r->used;
    return FLEET_OK;
}

fleet_status fl_parse_libsvm(const fl_parser *p, fl_scratch *scratch,
                             fl_batch_buffer *buffer)
{
    const fl_stream_spec *spec = p->spec;
    row r = {.p = p,
             .t = {.kernels = p->kernels, .tokens = &scratch->tokens},
             .buffer = buffer,
             .label = fl_libsvm_label(spec),
             .qid = fl_libsvm_qid(spec),
             .features = spec->n_slot - 1};

    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)buffer->lines.n));
    r.used = &scratch->used[r.features];
    *r.used = 0;
    for (; r.index < buffer->lines.n; r.index++) {
        r.line = &buffer->lines.line[r.index];
        fl_line_tokens_begin(&r.t, r.line);
        if (r.label >= 0)
            FL_TRY(read_label(&r));
        if (r.qid >= 0)
            FL_TRY(read_qid(&r));
        FL_TRY(read_features(&r));
    }
    return FLEET_OK;
}
