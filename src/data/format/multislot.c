/* multislot.c - lines as Fleet's data generators write them: for each slot a
 * count and that many values, with blanks between. A value of a weighted slot
 * is an id, or an id, a colon and its weight.
 *
 * Kernels cut a part of the line into tokens and read the short and simple
 * ones, many at a time. Tokens that they leave over are read by read_one(), one
 * by one.
 */
#include "data/format/multislot.h"

#include <stdio.h>

#include "data/text/line_tokens.h"

typedef struct row {
    const fl_parser *parser;
    const fl_line *line;
    fl_batch_buffer *buffer;
    fl_scratch *scratch;
    int64_t index;
    fl_line_tokens t;
} row;

/* token < 0: the line has ended. */
static fleet_status refuse_token(const row *r, const fl_field *f,
                                 const char *what, int token)
{
    return fl_bad_line(r->parser, r->line, f ? f->name : NULL, what,
                       token < 0 ? NULL : fl_token_begin(&r->t, token),
                       token < 0 ? NULL : fl_token_end(&r->t, token));
}

static fleet_status too_short(const row *r, const fl_field *f)
{
    return refuse_token(r, f, "more values, as its count says", -1);
}

static fleet_status read_count(row *r, const fl_field *f, int64_t *count)
{
    uint64_t n;
    char what[80];
    int token;

    if (!fl_line_tokens_next(&r->t, &token))
        return refuse_token(r, f, "a count of values", -1);
    if (!fl_parse_u64(fl_token_begin(&r->t, token), fl_token_end(&r->t, token),
                      &n))
        return refuse_token(r, f, "a count of values", token);
    if (f->dim < 0 && n > FL_LINE_LIMIT)
        return refuse_token(r, f, "a count of values in this line", token);
    if (f->dim >= 0 && n != (uint64_t)f->dim) {
        snprintf(what, sizeof what, "a count of %lld, as its dim",
                 (long long)f->dim);
        return refuse_token(r, f, what, token);
    }
    *count = (int64_t)n;
    return FLEET_OK;
}

/* How many of the tokens that are wanted can be read now. At least one, unless
 * the line has ended. */
static int at_hand(row *r, int64_t wanted)
{
    int n = r->t.n - r->t.i;

    if (n == 0 && !fl_line_tokens_more(&r->t))
        return 0;
    n = r->t.n - r->t.i;
    if (n > FL_READ_MOST)
        n = FL_READ_MOST;
    return n < wanted ? n : (int)wanted;
}

/* A value that a kernel did not read: the i-th token. *empty: it is none. */
static fleet_status read_one(const row *r, const fl_field *f, int i, void *out,
                             bool *empty)
{
    const char *s = fl_token_begin(&r->t, r->t.i + i),
               *end = fl_token_end(&r->t, r->t.i + i);

    *empty = s == end;
    if (*empty)
        return FLEET_OK;
    if (f->is_id)
        return fl_parse_u64(s, end, (uint64_t *)out + i)
                   ? FLEET_OK
                   : refuse_token(r, f, "an id (an integer from 0 to 2^64 - 1)",
                                  r->t.i + i);
    return fl_parse_float_any(s, end, (float *)out + i)
               ? FLEET_OK
               : refuse_token(r, f, "a finite number", r->t.i + i);
}

/* Read up to n values into out. Behind an empty token all would be one too far,
 * so that is where this ends. */
static fleet_status read_some(row *r, const fl_field *f, int64_t n, void *out,
                              int *done)
{
    const fl_kernels *k = r->parser->kernels;
    const uint32_t *at;
    bool empty = false;
    uint64_t left;

    *done = at_hand(r, n);
    if (*done == 0)
        return too_short(r, f);
    at = r->scratch->tokens.at + r->t.i;
    left = f->is_id ? k->read_ids(r->t.text, at, *done, out)
                    : k->read_floats(r->t.text, at, *done, out);
    for (int i; left && !empty; left &= left - 1) {
        i = __builtin_ctzll(left);
        FL_TRY(read_one(r, f, i, out, &empty));
        if (empty)
            *done = i;
    }
    r->t.i += *done + empty;
    return FLEET_OK;
}

/* Room for a ragged slot's next n values, and where they go. */
static fleet_status add_values(row *r, int slot, int64_t n, size_t *first)
{
    size_t *used = &r->scratch->used[slot];

    *first = *used;
    *used += (size_t)n;
    r->buffer->batch.slot[slot].offsets[r->index + 1] = (int64_t)*used;
    if (*used + FL_READ_SLACK <= r->buffer->capacity[slot])
        return FLEET_OK;
    return fl_batch_buffer_room(r->buffer, &r->parser->layout, slot,
                                *used + FL_READ_SLACK);
}

static fleet_status read_weighted_one(row *r, const fl_field *f, uint64_t *id,
                                      float *weight)
{
    const char *s, *end, *colon;
    int token;

    if (!fl_line_tokens_next(&r->t, &token))
        return too_short(r, f);
    s = fl_token_begin(&r->t, token);
    end = fl_token_end(&r->t, token);
    if (!fl_cut_weight(s, end, &colon, weight) || !fl_parse_u64(s, colon, id))
        return refuse_token(r, f,
                            "an id (an integer from 0 to 2^64 - 1), or "
                            "id:weight with a finite number",
                            token);
    return FLEET_OK;
}

/* n of them, from place `first` of the slot on. */
static fleet_status read_weighted(row *r, const fl_field *f, fl_slot_data *out,
                                  size_t first, int64_t n)
{
    for (size_t i = first; i < first + (size_t)n; i++)
        FL_TRY(read_weighted_one(r, f, (uint64_t *)out->values + i,
                                 &out->weights[i]));
    return FLEET_OK;
}

static fleet_status read_slot(row *r, int slot)
{
    const fl_field *f = &r->parser->layout.field[slot];
    fl_slot_data *out = &r->buffer->batch.slot[slot];
    size_t first = (size_t)(r->index * f->dim), size = fl_field_size(f);
    int64_t n = 0;
    int done;

    FL_TRY(read_count(r, f, &n));
    if (n > r->line->size) /* a wild count asks for no memory */
        return too_short(r, f);
    if (f->dim < 0)
        FL_TRY(add_values(r, slot, n, &first));
    if (f->weighted)
        return read_weighted(r, f, out, first, n);
    for (char *to = (char *)out->values + first * size; n > 0;
         n -= done, to += (size_t)done * size)
        FL_TRY(read_some(r, f, n, to, &done));
    return FLEET_OK;
}

/* Slots side by side that hold a single id each are most of a typical line. How
 * many could be read. */
static fleet_status read_single_ids(row *r, int slot, int *n)
{
    const uint32_t *at = r->scratch->tokens.at + r->t.i;
    int most = r->parser->layout.field[slot].n_alike;
    uint64_t left;

    *n = 0;
    if (most > (r->t.n - r->t.i) / 2)
        most = (r->t.n - r->t.i) / 2;
    if (most > FL_READ_MOST)
        most = FL_READ_MOST;
    if (most < 2 || r->t.text[at[0] + 1] != '1')
        return FLEET_OK;
    left = r->parser->kernels->read_single_ids(r->t.text, at, most,
                                               r->scratch->id);
    *n = left ? __builtin_ctzll(left) : most;
    for (int i = slot; i < slot + *n; i++) {
        size_t place = (size_t)r->index;

        if (r->parser->layout.field[i].dim < 0)
            FL_TRY(add_values(r, i, 1, &place));
        ((uint64_t *)r->buffer->batch.slot[i].values)[place] =
            r->scratch->id[i - slot];
    }
    r->t.i += 2 * *n;
    return FLEET_OK;
}

/* Most often a slot of the line was not declared: how many were, and which one
 * is the last, shows which. */
static fleet_status refuse_more(const row *r, int token)
{
    const fl_layout *l = &r->parser->layout;
    char what[160];

    snprintf(what, sizeof what,
             "the end of the line after the last of the %d slots that the "
             "dataset has, \"%.60s\"",
             l->n_field, l->field[l->n_field - 1].name);
    return refuse_token(r, NULL, what, token);
}

static fleet_status read_line(row *r)
{
    int done, token;

    fl_line_tokens_begin(&r->t, r->line);
    for (int i = 0; i < r->parser->layout.n_field; i += done) {
        FL_TRY(read_single_ids(r, i, &done));
        if (done == 0) {
            FL_TRY(read_slot(r, i));
            done = 1;
        }
    }
    return fl_line_tokens_next(&r->t, &token) ? refuse_more(r, token)
                                              : FLEET_OK;
}

fleet_status fl_parse_multislot(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    row r = {.parser = p,
             .buffer = buffer,
             .scratch = scratch,
             .t = {.kernels = p->kernels, .tokens = &scratch->tokens}};

    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)buffer->lines.n));
    for (int i = 0; i < p->layout.n_field; i++)
        scratch->used[i] = 0;
    for (size_t i = 0; i < buffer->lines.n; i++) {
        r.line = &buffer->lines.line[i];
        r.index = (int64_t)i;
        FL_TRY(read_line(&r));
    }
    return FLEET_OK;
}
