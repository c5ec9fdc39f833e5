/* json_lines.c - an object a line: the value of a key that is a slot's name is
 * the slot's, a single one or an array; null is none. What no slot is called is
 * passed over.
 *
 * Ids are integers, or texts, which are hashed as a cell of csv is. In a
 * weighted slot [ID, WEIGHT] may stand for an id.
 */
#include "data/format/json_lines.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/parse/row_values.h"
#include "data/text/json_scan.h"

typedef struct row {
    fl_row_values v;
    fl_json_scan s;
} row;

static fleet_status refuse_piece(const row *r, const fl_field *f,
                                 const char *what, const fl_json_piece *p)
{
    return fl_bad_line(r->v.parser, r->v.line, f ? f->name : NULL, what,
                       p->text, p->end);
}

/* What the scan says of the place where it is. */
static fleet_status refuse_here(const row *r, const fl_field *f)
{
    const bool more = r->s.at < r->s.end;

    return fl_bad_line(r->v.parser, r->v.line, f ? f->name : NULL,
                       r->s.expected, more ? r->s.at : NULL, r->s.end);
}

static fleet_status refuse_expected(row *r, const fl_field *f, const char *what)
{
    r->s.expected = what;
    return refuse_here(r, f);
}

/* The text that the string means. */
static fleet_status text_of(row *r, const fl_field *f, fl_json_piece *p)
{
    fl_scratch *s = r->v.scratch;
    const size_t most = (size_t)(p->end - p->text);
    size_t size;

    if (!p->escaped)
        return FLEET_OK;
    FL_TRY(fl_grow(&s->text, &s->text_capacity, most + FL_TEXT_PAD, 1));
    if (!fl_json_unescape(p, s->text, &size))
        return refuse_piece(r, f, "a string with JSON's escapes", p);
    p->text = s->text;
    p->end = s->text + size;
    return FLEET_OK;
}

/* --- values --------------------------------------------------------------- */

static fleet_status read_id(row *r, const fl_field *f, fl_json_piece *p,
                            uint64_t *out)
{
    if (p->is_string) {
        FL_TRY(text_of(r, f, p));
        *out = fl_hash(p->text, (size_t)(p->end - p->text), f->seed);
        return FLEET_OK;
    }
    if (fl_parse_u64(p->text, p->end, out))
        return FLEET_OK;
    *out = fl_json_piece_is(p, "true");
    return *out || fl_json_piece_is(p, "false")
               ? FLEET_OK
               : refuse_piece(r, f,
                              "an id (an integer from 0 to 2^64 - 1, or a "
                              "string)",
                              p);
}

static fleet_status read_number(row *r, const fl_field *f,
                                const fl_json_piece *p, float *out)
{
    if (!p->is_string && fl_parse_float(p->text, p->end, out))
        return FLEET_OK;
    *out = fl_json_piece_is(p, "true");
    return *out > 0 || fl_json_piece_is(p, "false")
               ? FLEET_OK
               : refuse_piece(r, f, "a finite number", p);
}

static fleet_status read_single(row *r, int slot, fl_json_piece *p, size_t *at)
{
    const fl_field *f = &r->v.parser->layout.field[slot];
    fl_slot_data *out = &r->v.buffer->batch.slot[slot];

    FL_TRY(fl_row_values_add(&r->v, slot, at));
    if (f->weighted)
        out->weights[*at] = 1.0f;
    return f->is_id ? read_id(r, f, p, (uint64_t *)out->values + *at)
                    : read_number(r, f, p, (float *)out->values + *at);
}

/* [ID, WEIGHT], whose [ is read. */
static fleet_status read_pair(row *r, int slot)
{
    const fl_field *f = &r->v.parser->layout.field[slot];
    fl_json_piece id, weight;
    size_t at = 0;

    if (!fl_json_scan_piece(&r->s, &id))
        return refuse_here(r, f);
    FL_TRY(read_single(r, slot, &id, &at));
    if (!fl_json_scan_take(&r->s, ','))
        return refuse_expected(r, f, "a comma and the id's weight");
    if (!fl_json_scan_piece(&r->s, &weight))
        return refuse_here(r, f);
    FL_TRY(
        read_number(r, f, &weight, &r->v.buffer->batch.slot[slot].weights[at]));
    return fl_json_scan_take(&r->s, ']')
               ? FLEET_OK
               : refuse_expected(r, f, "] behind the id's weight");
}

static fleet_status read_element(row *r, int slot)
{
    const fl_field *f = &r->v.parser->layout.field[slot];
    fl_json_piece p;
    size_t at;

    if (f->weighted && fl_json_scan_take(&r->s, '['))
        return read_pair(r, slot);
    return fl_json_scan_piece(&r->s, &p) ? read_single(r, slot, &p, &at)
                                         : refuse_here(r, f);
}

static fleet_status read_array(row *r, int slot)
{
    const fl_field *f = &r->v.parser->layout.field[slot];

    if (fl_json_scan_take(&r->s, ']'))
        return FLEET_OK;
    do
        FL_TRY(read_element(r, slot));
    while (fl_json_scan_take(&r->s, ','));
    return fl_json_scan_take(&r->s, ']')
               ? FLEET_OK
               : refuse_expected(r, f, "a comma or ]");
}

static fleet_status read_value(row *r, int slot)
{
    const fl_field *f = &r->v.parser->layout.field[slot];
    int64_t *seen = &r->v.scratch->seen[slot];
    fl_json_piece p;
    size_t at;

    if (*seen == r->v.row + 1)
        return refuse_expected(r, f, "one value: its key stands twice");
    *seen = r->v.row + 1;
    if (fl_json_scan_take(&r->s, '['))
        return read_array(r, slot);
    if (!fl_json_scan_piece(&r->s, &p))
        return refuse_here(r, f);
    return fl_json_piece_is(&p, "null") ? FLEET_OK
                                        : read_single(r, slot, &p, &at);
}

/* --- lines ---------------------------------------------------------------- */

static fleet_status read_member(row *r)
{
    fl_json_piece key;
    int slot;

    if (!fl_json_scan_key(&r->s, &key))
        return refuse_here(r, NULL);
    FL_TRY(text_of(r, NULL, &key));
    slot = fl_slot_names_find(&r->v.parser->names, key.text,
                              (size_t)(key.end - key.text));
    if (slot >= 0)
        return read_value(r, slot);
    return fl_json_scan_skip(&r->s) ? FLEET_OK : refuse_here(r, NULL);
}

static fleet_status read_line(row *r)
{
    r->s = (fl_json_scan){.at = r->v.line->text,
                          .end = r->v.line->text + r->v.line->size};
    if (!fl_json_scan_take(&r->s, '{'))
        return refuse_expected(r, NULL, "an object of JSON");
    if (!fl_json_scan_take(&r->s, '}')) {
        do
            FL_TRY(read_member(r));
        while (fl_json_scan_take(&r->s, ','));
        if (!fl_json_scan_take(&r->s, '}'))
            return refuse_expected(r, NULL, "a comma or }");
    }
    return fl_json_scan_end(&r->s) ? fl_row_values_end(&r->v)
                                   : refuse_here(r, NULL);
}

fleet_status fl_parse_json_lines(const fl_parser *p, fl_scratch *scratch,
                                 fl_batch_buffer *buffer)
{
    row r = {.v = {.parser = p, .buffer = buffer, .scratch = scratch}};

    FL_TRY(fl_row_values_begin(&r.v));
    memset(scratch->seen, 0, (size_t)p->layout.n_field * sizeof *scratch->seen);
    for (; r.v.row < (int64_t)buffer->lines.n; r.v.row++) {
        r.v.line = &buffer->lines.line[r.v.row];
        FL_TRY(read_line(&r));
    }
    return FLEET_OK;
}
