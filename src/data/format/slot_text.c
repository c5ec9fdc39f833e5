/* slot_text.c - tokens NAME:VALUE with blanks between, in any order; a slot has
 * the values of all tokens that name it. What no slot is called is passed over.
 */
#include "data/format/slot_text.h"

#include "data/parse/row_values.h"
#include "data/text/line_tokens.h"

static fleet_status refuse_token(const fl_row_values *v, const fl_field *f,
                                 const char *what, const char *s,
                                 const char *end)
{
    return fl_bad_line(v->parser, v->line, f ? f->name : NULL, what, s, end);
}

static fleet_status read_id(const fl_row_values *v, const fl_field *f,
                            const char *s, const char *end, fl_slot_data *out,
                            size_t at)
{
    uint64_t *id = (uint64_t *)out->values + at;
    const char *colon = end;

    if (!f->weighted)
        return fl_parse_u64(s, end, id)
                   ? FLEET_OK
                   : refuse_token(v, f, "an id (an integer from 0 to 2^64 - 1)",
                                  s, end);
    return fl_cut_weight(s, end, &colon, &out->weights[at]) &&
                   fl_parse_u64(s, colon, id)
               ? FLEET_OK
               : refuse_token(v, f,
                              "an id (an integer from 0 to 2^64 - 1), or "
                              "id:weight with a finite number",
                              s, end);
}

static fleet_status read_value(fl_row_values *v, int slot, const char *s,
                               const char *end)
{
    const fl_field *f = &v->parser->layout.field[slot];
    fl_slot_data *out = &v->buffer->batch.slot[slot];
    size_t at = 0;

    FL_TRY(fl_row_values_add(v, slot, &at));
    if (f->is_id)
        return read_id(v, f, s, end, out, at);
    return fl_parse_float(s, end, (float *)out->values + at)
               ? FLEET_OK
               : refuse_token(v, f, "a finite number", s, end);
}

static fleet_status read_line(fl_row_values *v, fl_line_tokens *t)
{
    const fl_slot_names *names = &v->parser->names;
    int token;

    fl_line_tokens_begin(t, v->line);
    while (fl_line_tokens_next(t, &token)) {
        const char *s = fl_token_begin(t, token), *end = fl_token_end(t, token);
        const char *colon = fl_find_colon(s, end);
        int slot;

        if (colon == end || colon == s)
            return refuse_token(v, NULL, "name:value", s, end);
        slot = fl_slot_names_find(names, s, (size_t)(colon - s));
        if (slot >= 0)
            FL_TRY(read_value(v, slot, colon + 1, end));
    }
    return fl_row_values_end(v);
}

fleet_status fl_parse_slot_text(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    fl_row_values v = {.parser = p, .buffer = buffer, .scratch = scratch};
    fl_line_tokens t = {.kernels = p->kernels, .tokens = &scratch->tokens};

    FL_TRY(fl_row_values_begin(&v));
    for (; v.row < (int64_t)buffer->lines.n; v.row++) {
        v.line = &buffer->lines.line[v.row];
        FL_TRY(read_line(&v, &t));
    }
    return FLEET_OK;
}
